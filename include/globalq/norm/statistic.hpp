// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the statistic of a part of a vector, and how statistics are put together.
///
/// A statistic is the bit pattern of max|x| (so that NaN > infinity > finite survives an integer maximum) and the sum
/// of (|x| / 2^e)^q, e the exponent of that maximum. Scaling by powers of two is exact and nothing overflows. Parts are
/// combined along a fixed tree over blocks of 4,096 values: the same bits for every thread count and backend. Powers are
/// taken of numbers cut to 26 bits, so that each product is exact in double and a fused multiply-add changes nothing.

#include "../core/scale_word.hpp"
#include "detail/avx512.hpp"
#include "order.hpp"

#include <cmath>

namespace GLOBALQ_ABI::norm {

/// Values of a block of the tree.
inline constexpr int block_values = 4096;

/// Largest finite order of a norm.
inline constexpr std::uint32_t max_order = 64;

/// max|x| and the scaled sum of powers of some values.
struct statistic {
  std::uint64_t max_bits = 0;  ///< of |x| as a double
  double sum = 0;              ///< of (|x| / 2^exponent)^q; unused for q = infinity

  GLOBALQ_FUNCTION double max() const { return double_of(max_bits); }
  GLOBALQ_FUNCTION bool finite() const { return max_bits < double_infinity; }
  GLOBALQ_FUNCTION int exponent() const { return exponent_of(max()); }
};

/// The statistic of both parts.
GLOBALQ_FUNCTION statistic merge(statistic const& a, statistic const& b, std::uint32_t q) {
  statistic r;
  r.max_bits = a.max_bits < b.max_bits ? b.max_bits : a.max_bits;
  if (q == infinity || !r.finite()) return r;
  int const e = r.exponent();
  // the smaller part is scaled down by an exact power of two; what underflows is below any rounding
  auto const scaled = [&](statistic const& s) {
    if (s.max_bits == 0) return 0.0;
    std::int64_t const shift = static_cast<std::int64_t>(q) * (s.exponent() - e);
    return shift < -1074 ? 0.0 : s.sum * globalq::power_of_two(static_cast<int>(shift));
  };
  double const sa = scaled(a), sb = scaled(b);
  r.sum = sa + sb;
  return r;
}

namespace detail {

/// A double cut to 26 significant bits: the product of two such is exact.
GLOBALQ_FUNCTION double cut26(double x) { return double_of(bits_of(x) & ~std::uint64_t{0x7ffffff}); }

/// The largest of count bit patterns without their signs.
template <class Word>
GLOBALQ_FUNCTION Word largest_pattern(Word const* x, int count, Word magnitude) {
  Word const* __restrict in = x;
  Word top = 0;
  for (int i = 0; i < count; ++i) {
    Word const m = static_cast<Word>(in[i] & magnitude);
    top = top < m ? m : top;
  }
  return top;
}

/// The bit pattern of max|x| of count values, as a double's.
template <class Word, class Widen>
GLOBALQ_FUNCTION std::uint64_t max_pattern(Word const* x, int count, Word magnitude, Widen const& widen) {
  return widen(largest_pattern(x, count, magnitude));
}

/// NaN as the one quiet NaN, everything else exact.
GLOBALQ_FUNCTION std::uint64_t as_double_bits(float x) {
  std::uint32_t const m = bits_of(x) & float_magnitude;
  if (m > float_infinity) return double_nan;
  if (m == float_infinity) return double_infinity;
  return bits_of(static_cast<double>(float_of(m)));
}

}  // namespace detail

/// The bit pattern of max|x| over [first, first + count), as a double's; NaN above infinity above all numbers.
GLOBALQ_FUNCTION std::uint64_t max_bits(const_vector x, std::uint64_t first, int count) {
  switch (x.type) {
    case dtype::float64:
      return detail::max_pattern(static_cast<std::uint64_t const*>(x.data) + first, count, double_magnitude,
                                 [](std::uint64_t m) { return m > double_infinity ? double_nan : m; });
    case dtype::float16:
      return detail::max_pattern(static_cast<std::uint16_t const*>(x.data) + first, count,
                                 std::uint16_t{0x7fff},
                                 [](std::uint16_t m) { return detail::as_double_bits(float16::widen(m)); });
    case dtype::bfloat16:
      return detail::max_pattern(static_cast<std::uint16_t const*>(x.data) + first, count,
                                 std::uint16_t{0x7fff},
                                 [](std::uint16_t m) { return detail::as_double_bits(bfloat16::widen(m)); });
    default:
#if GLOBALQ_AVX512
      return detail::as_double_bits(
          float_of(detail::largest_magnitude(static_cast<float const*>(x.data) + first, count)));
#endif
      return detail::max_pattern(static_cast<std::uint32_t const*>(x.data) + first, count, float_magnitude,
                                 [](std::uint32_t m) { return detail::as_double_bits(float_of(m)); });
  }
}

/// f(power), which takes |z| as a double to |z|^q. q is finite.
template <class F>
GLOBALQ_FUNCTION void with_power(std::uint32_t q, F const& f) {
  if (q == 1)
    f([](double v) { return v; });
  else if (q == 2)
    f([](double v) { return v * v; });  // 24 bits each: exact
  else
    f([q](double v) {
      double p = v;
      for (std::uint32_t k = 1; k < q; ++k) p = detail::cut26(p) * v;
      return p;
    });
}

/// Adds |z|^q of count values to 16 partial sums. q is finite.
/// @param z  values so scaled that no power leaves the range of a double
GLOBALQ_FUNCTION void add_powers(float const* z, int count, std::uint32_t q, double* partial) {
  float const* __restrict in = z;
  double* __restrict sums = partial;
  with_power(q, [&](auto power) {
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

/// add_powers(), and the bit pattern of the largest magnitude.
/// @param ahead  whether to ask for the values that come later in memory
GLOBALQ_FUNCTION std::uint32_t add_unscaled(float const* z, int count, std::uint32_t q,
                                            [[maybe_unused]] bool ahead, double* partial) {
#if GLOBALQ_AVX512
  if (q == 2) return add_squares(z, count, ahead, partial);
#endif
  add_powers(z, count, q, partial);
  return largest_pattern(reinterpret_cast<std::uint32_t const*>(z), count, float_magnitude);
}

}  // namespace detail

/// The sum of 16 partial sums along a fixed tree.
GLOBALQ_FUNCTION double add_up(double const* partial) {
  double s[16];
  for (int j = 0; j < 16; ++j) s[j] = partial[j];
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) s[j] += s[j + half];
    keep_order(s);
  }
  return s[0];
}

/// The exponent to load values with so that their magnitudes are below 2, within what load() takes.
GLOBALQ_FUNCTION int load_exponent(dtype type, int exponent) {
  int const low = type == dtype::float64 ? -1022 : -126, high = type == dtype::float64 ? 1023 : 127;
  int const e = -exponent;
  return e < low ? low : (e > high ? high : e);
}

/// Largest order for which powers of any float32 fit a double: 2^(-149 * 6) is normal.
inline constexpr std::uint32_t max_unscaled_order = 6;

/// The statistic of one block of at most block_values values.
///
/// Low powers of float32 and shorter types fit a double as they are: one pass, scaled at the end, which is exact.
GLOBALQ_FUNCTION statistic block_statistic(const_vector x, std::uint64_t first, int count, std::uint32_t q) {
  statistic s;
  bool const unscaled = x.type != dtype::float64 && q <= max_unscaled_order;
  if (!unscaled) {
    s.max_bits = max_bits(x, first, count);
    if (q == infinity || !s.finite() || s.max_bits == 0) return s;
  }
  int const e = unscaled ? 0 : s.exponent();
  int const loaded = load_exponent(x.type, e);
  // float64 near the ends of its range can't be brought to [1, 2) in one step: the rest is another power of two
  int const missing = -e - loaded;
  double partial[16] = {};
  std::uint32_t top = 0;
  constexpr int step = 256;
  float buffer[step];
  // nothing to convert: all at once, since every step waits for the sums of the one before
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
  s.sum = add_up(partial);
  if (unscaled) {
    s.max_bits = detail::as_double_bits(float_of(top));
    if (!s.finite() || s.max_bits == 0)
      s.sum = 0;
    else
      s.sum *= globalq::power_of_two(-s.exponent() * static_cast<int>(q));
  }
  return s;
}

/// x^(1/q), the same bits wherever it is computed: sqrt, or a fixed number of Newton steps in +, * and /.
/// @pre x = 0 or 1 <= x < 2^1000, 1 <= q <= 64
GLOBALQ_FUNCTION double root(double x, std::uint32_t q) {
  if (q == 1 || x == 0) return x;
  if (q == 2) return rounded(std::sqrt(x));
  double const order = static_cast<double>(q);
  double y = globalq::power_of_two(exponent_of(x) / static_cast<int>(q) +
                                   1);  // from above: Newton falls monotonically
  for (std::uint32_t step = 0; step < 16 + 2 * q; ++step) {
    double power = 1;
    for (std::uint32_t k = 1; k < q; ++k) power = rounded(power * y);
    double const quotient = rounded(x / power);
    double const rest = rounded((order - 1) * y);
    y = rounded(rounded(rest + quotient) / rounded(order));  // else -ffast-math multiplies by a reciprocal
  }
  return y;
}

/// ||x||_q / 2^exponent of a statistic.
GLOBALQ_FUNCTION double relative_norm(statistic const& s, std::uint32_t q) {
  if (s.max_bits == 0) return 0;
  double const top = s.max() * globalq::power_of_two(-(s.exponent() < -1023 ? -1023 : s.exponent()));
  double const tiny = s.exponent() < -1023 ? globalq::power_of_two(-1023 - s.exponent()) : 1.0;
  double const max = rounded(top * tiny);  // in [1, 2)
  if (q == infinity) return max;
  double const r = root(s.sum, q);
  return r < max ? max : r;  // a norm is never below its largest coordinate, whatever was rounded
}

/// The scale of a part times 2^-wide: ||x||_q, or the power of two above it; rounded up to what travels.
GLOBALQ_FUNCTION double local_unit(statistic const& s, order q, dtype type, int wide) {
  if (s.max_bits == 0) return 0;
  int const e = s.exponent() - wide;
  double const r = relative_norm(s, q);
  double const unit = e < -1022 ? r * globalq::power_of_two(-1022) * globalq::power_of_two(e + 1022)
                                : r * globalq::power_of_two(e);
  return representable(q.scale(unit), q.format(type));
}

}  // namespace GLOBALQ_ABI::norm
