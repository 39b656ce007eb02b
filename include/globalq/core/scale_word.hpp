// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: encodings of scales: 32 bits, a float whose sign bit became a ninth exponent bit; 8 bits; or a double.
///
/// The 32-bit word has range 2^-255 to 2^256 and 24 significant bits. It holds every float32 maximum exactly, and every
/// norm or partial sum of float32 vectors without overflow or subnormals. Words order as scales do, so an integer
/// maximum is the maximum. Scales are rounded up: a scale is never below the computed norm, nor that below the largest
/// coordinate. float64 vectors send doubles. Scales of the form quantum * 2^k may travel as k + 127 in one byte, as in
/// block-scaled formats.

#include "dtype.hpp"

#include <cstring>

namespace GLOBALQ_ABI {

/// The encoding of scales in frames.
struct scale_format {
  dtype type = dtype::float32;  ///< of the vector
  float quantum = 0;  ///< above 0: scales are quantum * 2^k, and k travels in one byte; not for float64

  GLOBALQ_FUNCTION constexpr scale_format(dtype of) : type(of) {}
  GLOBALQ_FUNCTION constexpr scale_format(dtype of, float step)
      : type(of), quantum(of == dtype::float64 ? 0 : step) {}

  GLOBALQ_FUNCTION constexpr bool in_a_byte() const { return quantum > 0; }
  GLOBALQ_FUNCTION constexpr bool in_a_word() const { return quantum <= 0 && type != dtype::float64; }
};

/// Bytes of a scale on the wire.
GLOBALQ_FUNCTION constexpr std::size_t scale_bytes(scale_format f) {
  return f.in_a_byte() ? 1 : (f.type == dtype::float64 ? 8 : 4);
}

/// The smallest word whose scale is at least @p scale.
/// @pre 0 <= scale <= 2^256 - 2^232
GLOBALQ_FUNCTION std::uint32_t scale_word(double scale) {
  if (!(scale > 0)) return 0;
  std::uint64_t const up =
      bits_of(scale) + 0x1fffffffULL;  // a carry into the exponent is the next power of two
  int const e = static_cast<int>(up >> 52) - 1023;
  if (e < -255) return 1U << 23;
  std::uint32_t const mantissa = static_cast<std::uint32_t>(up >> 29) & 0x7fffffU;
  return (static_cast<std::uint32_t>(e + 256) << 23) | mantissa;
}

/// The exponent of the scale. @pre the scale is not 0
GLOBALQ_FUNCTION int exponent_of_word(std::uint32_t word) { return static_cast<int>(word >> 23) - 256; }

/// The scale of a word times 2^by, exact.
/// @pre -600 <= by <= 600
GLOBALQ_FUNCTION double scale_of_word(std::uint32_t word, int by = 0) {
  std::uint64_t const exponent = static_cast<std::uint64_t>(exponent_of_word(word) + by + 1023);
  return word >> 23 == 0 ? 0.0 : double_of((exponent << 52) | (std::uint64_t{word & 0x7fffffU} << 29));
}

/// The byte of a scale quantum * 2^k of a frame of several terms is k + bias - ceil(log2(terms)).
inline constexpr int scale_byte_bias = 127;
inline constexpr std::uint8_t largest_scale_byte = 254;  ///< 255 is not a scale

/// Reads a number from any address. On a device it must be aligned: frames begin at multiples of 16 bytes there.
template <class T>
GLOBALQ_FUNCTION T load_from(std::byte const* at) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<T const*>(at);
#else
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
#endif
}
template <class T>
GLOBALQ_FUNCTION void store_to(std::byte* at, T value) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<T*>(at) = value;
#else
  std::memcpy(at, &value, sizeof value);
#endif
}

/// Scale i of a frame.
/// @param terms  workers that the frame sums
GLOBALQ_FUNCTION double read_scale(std::byte const* scales, std::uint64_t i, scale_format f, int terms = 1) {
  if (f.in_a_byte()) {
    int const k = static_cast<int>(static_cast<std::uint8_t>(scales[i])) - scale_byte_bias;
    return static_cast<double>(f.quantum) * power_of_two(k + log2_ceil(static_cast<std::uint64_t>(terms)));
  }
  if (f.type == dtype::float64) return load_from<double>(scales + 8 * i);
  return scale_of_word(load_from<std::uint32_t>(scales + 4 * i));
}

/// The exponent k of the smallest quantum * 2^k that is at least @p scale and fits into a byte.
GLOBALQ_FUNCTION int scale_exponent(double scale, float quantum) {
  if (!(scale > 0)) return -scale_byte_bias;
  int k = exponent_of(scale) - exponent_of(static_cast<double>(quantum));
  k = k < -2 * scale_byte_bias ? -2 * scale_byte_bias : k;
  if (static_cast<double>(quantum) * power_of_two(k) < scale) ++k;
  return k < -scale_byte_bias ? -scale_byte_bias : k;
}

/// Writes scale i of a frame.
/// @param scale  rounded up; if not float64, at most 2^256 - 2^232; in a byte, at most quantum * 2^127 per worker
GLOBALQ_FUNCTION void write_scale(std::byte* scales, std::uint64_t i, scale_format f, double scale,
                                  int terms = 1) {
  if (f.in_a_byte()) {
    int const k =
        scale_exponent(scale, f.quantum) - log2_ceil(static_cast<std::uint64_t>(terms)) + scale_byte_bias;
    scales[i] = static_cast<std::byte>(k < 0 ? 0 : (k > largest_scale_byte ? largest_scale_byte : k));
  } else if (f.type == dtype::float64) {
    store_to(scales + 8 * i, scale);
  } else {
    store_to(scales + 4 * i, scale_word(scale));
  }
}

/// The scale that one worker sends: @p scale rounded up to the encoding (float64: unchanged); 0 stays 0.
GLOBALQ_FUNCTION double representable(double scale, scale_format f) {
  if (f.in_a_byte())
    return scale > 0 ? static_cast<double>(f.quantum) * power_of_two(scale_exponent(scale, f.quantum)) : 0.0;
  return f.type == dtype::float64 ? scale : scale_of_word(scale_word(scale));
}

}  // namespace GLOBALQ_ABI
