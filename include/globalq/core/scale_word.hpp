// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: encodings of scales: 32 bits, a float whose sign bit became a ninth exponent bit; 8 bits; or a double.
///
/// The 32-bit word has range 2^-255 to 2^256 and 24 significant bits. It holds every float32 maximum exactly, and every
/// norm or partial sum of float32 vectors without overflow or subnormals. Words order as scales do, so an integer
/// maximum is the maximum. Scales are rounded up: a scale is never below the computed norm, nor that below the largest
/// coordinate. float64 vectors send doubles. Scales may travel in one byte, as in block-scaled formats: as k + 127, if
/// they are quantum * 2^k; or as an E4M3 number that multiplies quantum and one word in front of the bytes, the scale of
/// the vector.

#include "dtype.hpp"

#include <cstring>

namespace GLOBALQ_ABI {

/// The number in the byte of a scale.
enum class scale_byte : std::uint8_t {
  none,      ///< scales have no byte
  exponent,  ///< the scale is quantum * 2^number
  e4m3       ///< the scale is quantum * number * the scale of the vector, which travels in front
};

/// The encoding of scales in frames.
struct scale_format {
  dtype type = dtype::float32;  ///< of the vector
  float quantum =
      0;  ///< of scales in a byte, negative with two levels: no more members, as kernels have few registers

  GLOBALQ_FUNCTION constexpr scale_format(dtype of) : type(of) {}
  GLOBALQ_FUNCTION constexpr scale_format(dtype of, float step, scale_byte number = scale_byte::exponent)
      : type(of) {
    if (of != dtype::float64 && number != scale_byte::none)
      quantum = number == scale_byte::e4m3 ? -step : step;  // float64 vectors send doubles
  }

  GLOBALQ_FUNCTION constexpr bool in_a_byte() const { return quantum != 0; }
  GLOBALQ_FUNCTION constexpr bool in_a_word() const { return quantum == 0 && type != dtype::float64; }
  GLOBALQ_FUNCTION constexpr bool two_level() const { return quantum < 0; }
};

/// Bytes of a scale on the wire.
GLOBALQ_FUNCTION constexpr std::size_t scale_bytes(scale_format f) {
  return f.in_a_byte() ? 1 : (f.type == dtype::float64 ? 8 : 4);
}

/// Bytes in front of the scales of a frame.
GLOBALQ_FUNCTION constexpr std::size_t vector_scale_bytes(scale_format f) { return f.two_level() ? 4 : 0; }

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

/// The largest byte that is a scale: 255 is NaN in E8M0, and 127 in E4M3, where the bytes above are negative.
GLOBALQ_FUNCTION constexpr std::uint8_t largest_scale_byte(scale_format f) {
  return f.two_level() ? 126 : 254;
}

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

/// The number of an E4M3 byte that is a scale, exact.
GLOBALQ_FUNCTION double number_of_e4m3(std::uint8_t byte) {
  std::uint64_t const exponent = byte >> 3, mantissa = byte & 7;
  if (exponent == 0) return static_cast<double>(mantissa) * 0x1p-9;
  return double_of(((exponent + 1016) << 52) | (mantissa << 49));
}

/// The smallest E4M3 byte whose number times @p unit is at least @p scale; at most the largest, 126.
/// @param unit  of at most 48 significant bits, so that products are exact
GLOBALQ_FUNCTION std::uint8_t e4m3_above(double scale, double unit) {
  if (!(scale > 0)) return 0;
  int e = exponent_of(scale) - exponent_of(unit);  // scale / unit is between 2^(e - 1) and 2^(e + 1)
  if (e > 9) return 126;
  if (e < -6)
    e = -6;
  else if (e > -6 && power_of_two(e) * unit > scale)
    --e;
  int const byte =
      8 * (e + 6) + static_cast<int>(scale / (power_of_two(e - 3) * unit));  // right, or one too few
  if (byte >= 126) return 126;
  return static_cast<std::uint8_t>(number_of_e4m3(static_cast<std::uint8_t>(byte)) * unit < scale ? byte + 1
                                                                                                  : byte);
}

/// The scale of a vector with two levels of scales: the E4M3 numbers reach its largest magnitude.
GLOBALQ_FUNCTION double vector_scale_of(double largest, scale_format f) {
  return scale_of_word(
      scale_word(largest * power_of_two(-exponent_of(-448.0 * static_cast<double>(f.quantum)))));
}

/// The scale of a block in such a vector: @p largest rounded up.
GLOBALQ_FUNCTION double block_scale_of(double largest, double vector_scale, scale_format f) {
  double const unit = -static_cast<double>(f.quantum) * vector_scale;
  return number_of_e4m3(e4m3_above(largest, unit)) * unit;
}

/// Scale i of a frame.
/// @param terms  workers that the frame sums
GLOBALQ_FUNCTION double read_scale(std::byte const* scales, std::uint64_t i, scale_format f, int terms = 1) {
  if (f.in_a_byte() && !f.two_level()) {
    int const k = static_cast<int>(static_cast<std::uint8_t>(scales[i])) - scale_byte_bias;
    return static_cast<double>(f.quantum) * power_of_two(k + log2_ceil(static_cast<std::uint64_t>(terms)));
  }
  if (f.type == dtype::float64) return load_from<double>(scales + 8 * i);
  double const scale = scale_of_word(load_from<std::uint32_t>(scales + (f.two_level() ? 0 : 4 * i)));
  if (!f.two_level()) return scale;
  return scale * (-static_cast<double>(f.quantum) *
                  number_of_e4m3(static_cast<std::uint8_t>(scales[vector_scale_bytes(f) + i])));
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
/// @pre with two levels, the scale of the vector has been written
GLOBALQ_FUNCTION void write_scale(std::byte* scales, std::uint64_t i, scale_format f, double scale,
                                  int terms = 1) {
  if (f.two_level()) {
    double const unit = -static_cast<double>(f.quantum) * scale_of_word(load_from<std::uint32_t>(scales));
    scales[vector_scale_bytes(f) + i] = static_cast<std::byte>(e4m3_above(scale, unit));
  } else if (f.in_a_byte()) {
    int const k =
        scale_exponent(scale, f.quantum) - log2_ceil(static_cast<std::uint64_t>(terms)) + scale_byte_bias;
    scales[i] = static_cast<std::byte>(k < 0 ? 0 : (k > largest_scale_byte(f) ? largest_scale_byte(f) : k));
  } else if (f.type == dtype::float64) {
    store_to(scales + 8 * i, scale);
  } else {
    store_to(scales + 4 * i, scale_word(scale));
  }
}

/// The scale that one worker sends: @p scale rounded up to the encoding (float64: unchanged); 0 stays 0. With two levels
/// unchanged: block_scale_of() rounds it when the scale of the vector is known.
GLOBALQ_FUNCTION double representable(double scale, scale_format f) {
  if (f.two_level()) return scale;
  if (f.in_a_byte())
    return scale > 0 ? static_cast<double>(f.quantum) * power_of_two(scale_exponent(scale, f.quantum)) : 0.0;
  return f.type == dtype::float64 ? scale : scale_of_word(scale_word(scale));
}

}  // namespace GLOBALQ_ABI
