// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the order of a norm within a worker, and whether its scale is rounded up to 2^k or c 2^k.

#include "../core/scale_word.hpp"

namespace GLOBALQ_ABI::norm {

/// @brief An order from 1 to 64, or globalq::infinity; converts to a plain number.
struct order {
  std::uint32_t value = 0;
  float quantum =
      0;  ///< above 0: scales are rounded up to quantum * 2^k; see norm::power_of_two and shared_exponent
  bool in_byte = false;  ///< local scales travel as k, in one byte

  constexpr order() = default;
  GLOBALQ_FUNCTION constexpr order(std::uint32_t q) : value(q) {}
  GLOBALQ_FUNCTION constexpr order(std::uint32_t q, float step, bool one_byte = false)
      : value(q), quantum(step), in_byte(one_byte) {}
  GLOBALQ_FUNCTION constexpr operator std::uint32_t() const { return value; }

  GLOBALQ_FUNCTION constexpr bool rounds_up() const { return quantum > 0; }

  /// The encoding of scales for vectors of a type.
  GLOBALQ_FUNCTION constexpr scale_format format(dtype type) const {
    return in_byte ? scale_format(type, quantum) : scale_format(type);
  }

  /// The scale of a norm: the norm, or the smallest quantum * 2^k that is not below it; infinity on overflow of double.
  GLOBALQ_FUNCTION double scale(double norm) const {
    if (!rounds_up() || !(norm > 0) || bits_of(norm) >= double_infinity) return norm;
    double const step = static_cast<double>(quantum);
    int e = exponent_of(norm) - exponent_of(step);  // step * 2^e may be below norm, step * 2^(e + 1) is not
    e = e < -1074 ? -1074 : e;
    double const below = step * globalq::power_of_two(e);
    if (below >= norm) return below;
    return e < 1023 ? step * globalq::power_of_two(e + 1) : double_of(double_infinity);
  }
};

}  // namespace GLOBALQ_ABI::norm
