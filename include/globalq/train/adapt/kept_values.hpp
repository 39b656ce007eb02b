// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: converts a density to a number of values.

#include "../../core/float_environment.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace GLOBALQ_ABI::adapt {

/// @brief The number of values that Top-K keeps: density * size, rounded up, at least one unless the size is 0.
inline std::uint64_t kept_values(std::uint64_t size, double density) {
  // the factor undoes a rounding of the product to just above an integer
  double const k =
      computed_exactly([&] { return std::ceil(density * static_cast<double>(size) * (1 - 0x1p-40)); });
  return std::min(size, std::max<std::uint64_t>(k > 1 ? static_cast<std::uint64_t>(k) : 1, 1));
}

}  // namespace GLOBALQ_ABI::adapt
