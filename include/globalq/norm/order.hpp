// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the order of a norm within a worker, and whether its scale is rounded up.

#include "../core/scale_word.hpp"

namespace GLOBALQ_ABI::norm {

/// @brief An order from 1 to 64, or globalq::infinity; converts to a plain number.
struct order {
  std::uint32_t value = 0;
  /// Above 0: scales are rounded up to quantum * 2^k (norm::power_of_two, shared_exponent), or as norm::two_level does.
  float quantum = 0;
  scale_byte byte = scale_byte::none;  ///< of local scales

  constexpr order() = default;
  GLOBALQ_FUNCTION constexpr order(std::uint32_t q) : value(q) {}
  GLOBALQ_FUNCTION constexpr order(std::uint32_t q, float step, scale_byte in = scale_byte::none)
      : value(q), quantum(step), byte(in) {}
  GLOBALQ_FUNCTION constexpr operator std::uint32_t() const { return value; }

  /// Whether scales are rounded up to quantum * 2^k.
  GLOBALQ_FUNCTION constexpr bool rounds_up() const { return quantum > 0 && byte != scale_byte::e4m3; }

  /// The encoding of scales for vectors of a type.
  GLOBALQ_FUNCTION constexpr scale_format format(dtype type) const { return {type, quantum, byte}; }

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

/// @brief A bound on the error of every value of a mean; see norm::fixed.
struct error_bound {
  double largest = 0;  ///< 0: there is none
  dtype vectors =
      dtype::float32;  ///< of float16 or bfloat16: the bound includes the rounding of the mean to that type
};

}  // namespace GLOBALQ_ABI::norm
