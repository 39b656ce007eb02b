// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the order of a norm within a worker, and whether the scale that follows from it is a power of two.

#include "../core/arithmetic.hpp"

namespace globalq::norm {

/// @brief An order from 1 to 64, or globalq::infinity, that is a plain number wherever only the norm is asked for.
struct order {
  std::uint32_t value = 0;
  bool power_of_two = false;  ///< scales are rounded up to one; see norm::power_of_two

  constexpr order() = default;
  GLOBALQ_FUNCTION constexpr order(std::uint32_t q, bool rounds = false) : value(q), power_of_two(rounds) {}
  GLOBALQ_FUNCTION constexpr operator std::uint32_t() const { return value; }

  /// What values of this norm are divided by; beyond the range of a double: infinity.
  GLOBALQ_FUNCTION double scale(double norm) const {
    if (!power_of_two || !(norm > 0) || bits_of(norm) >= double_infinity) return norm;
    int const e = exponent_of(norm);
    double const below = globalq::power_of_two(e);
    if (below == norm) return norm;
    return e < 1023 ? globalq::power_of_two(e + 1) : double_of(double_infinity);
  }
};

}  // namespace globalq::norm
