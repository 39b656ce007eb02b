// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: a scale in 32 bits: a float whose sign bit, never used by a norm, became a ninth exponent bit.
///
/// Range 2^-255 to 2^256 with 24 significant bits: every float32 maximum exactly, and every norm or partial sum of
/// float32 vectors without overflow or subnormals. Words order as the scales do, so an integer maximum is the maximum.
/// Rounding is upwards: a scale never lies below the computed norm, nor that below the largest coordinate. float64
/// vectors use the double itself.

#include "dtype.hpp"

namespace globalq {

/// Bytes of a scale on the wire.
constexpr std::size_t scale_bytes(dtype type) { return type == dtype::float64 ? 8 : 4; }

/// The smallest word whose scale is at least @p unit.
/// @pre 0 <= unit <= 2^256 - 2^232
GLOBALQ_FUNCTION std::uint32_t scale_word(double unit) {
  if (!(unit > 0)) return 0;
  std::uint64_t const up =
      bits_of(unit) + 0x1fffffffULL;  // a carry into the exponent is the next power of two
  int const e = static_cast<int>(up >> 52) - 1023;
  if (e < -255) return 1U << 23;
  std::uint32_t const mantissa = static_cast<std::uint32_t>(up >> 29) & 0x7fffffU;
  return (static_cast<std::uint32_t>(e + 256) << 23) | mantissa;
}

/// The scale of a word, exact.
GLOBALQ_FUNCTION double scale_of_word(std::uint32_t word) {
  if ((word >> 23) == 0) return 0;
  return double_of((static_cast<std::uint64_t>((word >> 23) + 1023U - 256U) << 52) |
                   (static_cast<std::uint64_t>(word & 0x7fffffU) << 29));
}

/// Scale i of those that travel one after the other, in a vector of @p type.
GLOBALQ_FUNCTION double read_scale(std::byte const* scales, std::uint64_t i, dtype type) {
  if (type == dtype::float64) return reinterpret_cast<double const*>(scales)[i];
  return scale_of_word(reinterpret_cast<std::uint32_t const*>(scales)[i]);
}

/// Writes it.
/// @param unit  at most 2^256 - 2^232 where the type is not float64; rounded up
GLOBALQ_FUNCTION void write_scale(std::byte* scales, std::uint64_t i, dtype type, double unit) {
  if (type == dtype::float64)
    reinterpret_cast<double*>(scales)[i] = unit;
  else
    reinterpret_cast<std::uint32_t*>(scales)[i] = scale_word(unit);
}

/// The scale as it travels: @p unit rounded up to what a word holds (float64: unchanged).
GLOBALQ_FUNCTION double representable(double unit, dtype type) {
  return type == dtype::float64 ? unit : scale_of_word(scale_word(unit));
}

}  // namespace globalq
