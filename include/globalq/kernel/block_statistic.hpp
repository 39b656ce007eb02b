// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the statistic of a block of a vector.

#include "../core/prefetch.hpp"
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

namespace detail {

/// A power of a value v, from a lower one, p, if it uses one.
struct itself {
  static constexpr bool uses_power = false;
  GLOBALQ_FUNCTION static double of(double v, double) { return v; }
};
template <bool Odd>
struct first_step {
  static constexpr bool uses_power = false;
  GLOBALQ_FUNCTION static double of(double v, double) { return norm::raised<Odd>(v, v); }
};
template <bool Odd>
struct next_step {
  static constexpr bool uses_power = true;
  GLOBALQ_FUNCTION static double of(double v, double p) {
    return norm::raised<Odd>(norm::detail::cut26(p), v);
  }
};

GLOBALQ_FUNCTION double magnitude(float z) {
  return static_cast<double>(float_of(bits_of(z) & float_magnitude));
}

/// Replaces powers by higher ones.
template <class Step>
GLOBALQ_LOOP void raise(float const* __restrict z, int count, double* __restrict powers) {
  for (int i = 0; i < count; i += 16)
    for (int j = 0; j < 16; ++j)
      powers[i + j] = Step::of(magnitude(z[i + j]), Step::uses_power ? powers[i + j] : 0);
}

/// Adds higher powers to 16 partial sums: value i to sum i % 16. There are no lower ones if the step uses none.
template <class Step>
GLOBALQ_LOOP void add_raised(float const* __restrict z, int count, double const* __restrict powers,
                             double* __restrict sums) {
  for (int i = 0; i < count; i += 16) {
    for (int j = 0; j < 16; ++j)
      sums[j] += Step::of(magnitude(z[i + j]), Step::uses_power ? powers[i + j] : 0);
    keep_order(*reinterpret_cast<double(*)[16]>(sums));
  }
}

/// Adds |z|^q of count values to 16 partial sums. Raises the powers of a tile in L1 along the bits of q, one loop without
/// branches for each bit.
/// @pre count is a multiple of 16
GLOBALQ_ALWAYS_INLINE void add_tiles_of_powers(float const* z, int count, std::uint32_t q, double* partial) {
  constexpr int tile = 256;
  alignas(64) double powers[tile];
  std::uint32_t const first = norm::highest_bit(q) / 2;
  int const most = first > 1 ? tile : count;  // up to order 3 no power is stored
  for (int at = 0; at < count; at += most) {
    int const n = count - at < most ? count - at : most;
    float const* const x = z + at;
    auto const with_step = [&](std::uint32_t bit, auto const& f) {
      bool const odd = (q & bit) != 0;
      if (bit == first) return odd ? f(first_step<true>{}) : f(first_step<false>{});
      return odd ? f(next_step<true>{}) : f(next_step<false>{});
    };
    auto const add = [&]<class Step>(Step) { add_raised<Step>(x, n, powers, partial); };
    for (std::uint32_t bit = first; bit > 1; bit /= 2)
      with_step(bit, [&]<class Step>(Step) { raise<Step>(x, n, powers); });
    if (first == 0)
      add(itself{});
    else
      with_step(1, add);
  }
}

}  // namespace detail

/// Adds |z|^q of count values to 16 partial sums: value i to sum i % 16. q is finite.
/// @param z      values scaled so that their powers stay within the range of a double
/// @param ahead  whether to prefetch later values
/// @returns the bit pattern of the largest magnitude
GLOBALQ_ALWAYS_INLINE std::uint32_t add_powers(float const* z, int count, std::uint32_t q,
                                               [[maybe_unused]] bool ahead, double* partial) {
#if GLOBALQ_AVX512
  return detail::add_powers_of(z, count, q, ahead, partial);
#else
  int const whole = count & ~15;
  detail::add_tiles_of_powers(z, whole, q, partial);
  if (whole < count) {
    float rest[16] = {};
    for (int k = whole; k < count; ++k) rest[k - whole] = z[k];
    detail::add_tiles_of_powers(rest, 16, q, partial);
  }
  return detail::largest_pattern(reinterpret_cast<std::uint32_t const*>(z), count, float_magnitude);
#endif
}

/// The statistic of one block of at most block_values values.
///
/// Low powers of float32 and shorter types fit a double unscaled: one pass computes them, and scaling at the end is
/// exact.
GLOBALQ_ALWAYS_INLINE norm::statistic block_statistic(const_vector x, std::uint64_t first, int count,
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
  alignas(64) float buffer[step];
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
    // the maximum of the next block will wait for memory only: these loops have time to bring it
    if (!unscaled && count == norm::block_values)
      prefetch(static_cast<std::byte const*>(x.data) +
                   (first + static_cast<std::uint64_t>(i + count)) * size_of(x.type),
               static_cast<std::size_t>(m) * size_of(x.type));
    std::uint32_t const most = add_powers(z, m, q, z != buffer, partial);
    top = top < most ? most : top;
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
