// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the statistic of a block of a vector.

#include "../norm/statistic.hpp"
#include "load_store.hpp"
#if GLOBALQ_AVX512
#include "isa/magnitudes_avx512.hpp"
#endif

namespace GLOBALQ_ABI::kernel {

namespace detail {

/// The largest of count bit patterns, signs masked off by @p magnitude.
template <class Word>
GLOBALQ_LOOP Word largest_pattern(Word const* x, int count, Word magnitude) {
  auto const pattern = [=](int i) { return static_cast<Word>(x[i] & magnitude); };
  // independent maxima hide the latency of each; 128 bytes of them are four AVX2 registers
  constexpr int width = 128 / sizeof(Word);
  Word most = 0;
  int i = 0;
  if (count >= width) {
    Word top[width];
    for (int k = 0; k < width; ++k) top[k] = pattern(k);
    for (i = width; i + width <= count; i += width)
      for (int k = 0; k < width; ++k) top[k] = top[k] < pattern(i + k) ? pattern(i + k) : top[k];
    for (int k = 0; k < width; ++k) most = most < top[k] ? top[k] : most;
  }
  for (; i < count; ++i) most = most < pattern(i) ? pattern(i) : most;
  return most;
}

/// The bit pattern of max|x| of count values, as that of a double.
template <class Word, class Widen>
GLOBALQ_FUNCTION std::uint64_t max_pattern(Word const* x, int count, Word magnitude, Widen const& widen) {
  return widen(largest_pattern(x, count, magnitude));
}

}  // namespace detail

/// The bit pattern of max|x| over [first, first + count), as that of a double. NaN is above infinity, infinity above
/// the rest.
GLOBALQ_FUNCTION std::uint64_t max_bits(const_vector x, std::uint64_t first, int count) {
  switch (x.type) {
    case dtype::float64:
      return detail::max_pattern(static_cast<std::uint64_t const*>(x.data) + first, count, double_magnitude,
                                 [](std::uint64_t m) { return m > double_infinity ? double_nan : m; });
    case dtype::float16:
      return detail::max_pattern(
          static_cast<std::uint16_t const*>(x.data) + first, count, std::uint16_t{0x7fff},
          [](std::uint16_t m) { return norm::detail::as_double_bits(float16::widen(m)); });
    case dtype::bfloat16:
      return detail::max_pattern(
          static_cast<std::uint16_t const*>(x.data) + first, count, std::uint16_t{0x7fff},
          [](std::uint16_t m) { return norm::detail::as_double_bits(bfloat16::widen(m)); });
    default:
#if GLOBALQ_AVX512
      return norm::detail::as_double_bits(
          float_of(detail::largest_magnitude(static_cast<float const*>(x.data) + first, count)));
#endif
      return detail::max_pattern(static_cast<std::uint32_t const*>(x.data) + first, count, float_magnitude,
                                 [](std::uint32_t m) { return norm::detail::as_double_bits(float_of(m)); });
  }
}

/// Adds |z|^q of count values to 16 partial sums. q is finite.
/// @param z  values scaled so that their powers stay within the range of a double
GLOBALQ_FUNCTION void add_powers(float const* z, int count, std::uint32_t q, double* partial) {
  float const* __restrict in = z;
  double* __restrict sums = partial;
  norm::with_power(q, [&](auto power) {
    int i = 0;
    for (; i + 16 <= count; i += 16) {
      for (int j = 0; j < 16; ++j)
        sums[j] += power(static_cast<double>(float_of(bits_of(in[i + j]) & float_magnitude)));
      keep_order(*reinterpret_cast<double(*)[16]>(partial));
    }
    for (int j = 0; i + j < count; ++j)
      sums[j] += power(static_cast<double>(float_of(bits_of(in[i + j]) & float_magnitude)));
  });
}

namespace detail {

/// add_powers(), and returns the bit pattern of the largest magnitude.
/// @param ahead  whether to prefetch later values
GLOBALQ_FUNCTION std::uint32_t add_unscaled(float const* z, int count, std::uint32_t q,
                                            [[maybe_unused]] bool ahead, double* partial) {
#if GLOBALQ_AVX512
  if (q == 2) return add_squares(z, count, ahead, partial);
#endif
  add_powers(z, count, q, partial);
  return largest_pattern(reinterpret_cast<std::uint32_t const*>(z), count, float_magnitude);
}

}  // namespace detail

/// The statistic of one block of at most block_values values.
///
/// Low powers of float32 and shorter types fit a double unscaled: one pass computes them, and scaling at the end is
/// exact.
GLOBALQ_FUNCTION norm::statistic block_statistic(const_vector x, std::uint64_t first, int count,
                                                 std::uint32_t q) {
  norm::statistic s{};
  bool const unscaled = x.type != dtype::float64 && q <= norm::max_unscaled_order;
  if (!unscaled) {
    s.max_bits = max_bits(x, first, count);
    if (q == infinity || !s.finite() || s.max_bits == 0) return s;
  }
  int const e = unscaled ? 0 : s.exponent();
  int const loaded = norm::load_exponent(x.type, e);
  // float64 near the ends of its range cannot be scaled to [1, 2) in one step: a second power of two does the remainder
  int const missing = -e - loaded;
  double partial[16] = {};
  std::uint32_t top = 0;
  constexpr int step = 256;
  float buffer[step];
  // float32 needs no conversion: one call for all values, because each call would wait for the sums of the previous one
  int const most_values = unscaled && x.type == dtype::float32 ? count : step;
  for (int i = 0; i < count; i += most_values) {
    int const m = count - i < most_values ? count - i : most_values;
    float const* z = load<step>(x, first + static_cast<std::uint64_t>(i), m, loaded, buffer);
    if (missing != 0) {
      float const factor = power_of_two_float(missing > 127 ? 127 : missing);
      for (int k = 0; k < m; ++k) buffer[k] = multiply(z[k], factor);
      z = buffer;
    }
    if (unscaled) {
      std::uint32_t const most = detail::add_unscaled(z, m, q, z != buffer, partial);
      top = top < most ? most : top;
    } else {
      add_powers(z, m, q, partial);
    }
  }
  s.sum = norm::add_up(partial);
  if (unscaled) {
    s.max_bits = norm::detail::as_double_bits(float_of(top));
    if (!s.finite() || s.max_bits == 0)
      s.sum = 0;
    else
      s.sum *= globalq::power_of_two(-s.exponent() * static_cast<int>(q));
  }
  return s;
}

}  // namespace GLOBALQ_ABI::kernel
