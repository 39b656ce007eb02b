// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: how many values a sparse method sends, and out of which.

#include "../core/error.hpp"
#include "../train/adapt/kept_values.hpp"

#include <cstdint>
#include <string>

namespace GLOBALQ_ABI::baseline {

/// Out of what values are chosen.
enum class scope : std::uint8_t {
  layer,  ///< out of each layer by itself
  whole   ///< out of all layers together
};

/// @brief The k of @p size values: adapt::kept_values, so at least 1 of any.
/// @throws configuration_error unless density is in (0, 1]
inline std::uint64_t count_of(double density, std::uint64_t size, char const* operation) {
  if (!(density > 0 && density <= 1))
    throw configuration_error("globalq: " + std::string(operation) + ": the density is " +
                              std::to_string(density) + "; use a share of the values, above 0 and at most 1");
  return adapt::kept_values(size, density);
}

}  // namespace GLOBALQ_ABI::baseline
