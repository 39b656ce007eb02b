// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the number of values that a sparse method sends, and the set it selects them from.

#include "../core/error.hpp"
#include "../train/adapt/kept_values.hpp"

#include <cstdint>
#include <string>

namespace GLOBALQ_ABI::baseline {

/// The set from which values are selected.
enum class scope : std::uint8_t {
  layer,  ///< each layer separately
  whole   ///< all layers together
};

/// @brief The number k of values for a density: adapt::kept_values, so at least 1 unless @p size is 0.
/// @throws configuration_error unless density is in (0, 1]
inline std::uint64_t count_of(double density, std::uint64_t size, char const* operation) {
  if (!(density > 0 && density <= 1))
    throw configuration_error("globalq: " + std::string(operation) + ": the density is " +
                              std::to_string(density) + "; use a share of the values in (0, 1]");
  return adapt::kept_values(size, density);
}

}  // namespace GLOBALQ_ABI::baseline
