// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: how many values a density stands for.

#include "../../core/detail/abi.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace GLOBALQ_ABI::adapt {

/// @brief How many values Top-K keeps: density * size, rounded up, at least one of any.
inline std::uint64_t kept_values(std::uint64_t size, double density) {
  // a product that rounding lifted over a whole number stays at it
  double const k = std::ceil(density * static_cast<double>(size) * (1 - 0x1p-40));
  return std::min(size, std::max<std::uint64_t>(k > 1 ? static_cast<std::uint64_t>(k) : 1, 1));
}

}  // namespace GLOBALQ_ABI::adapt
