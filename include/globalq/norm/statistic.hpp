// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the statistic of a part of a vector, and the merge of statistics.
///
/// A statistic is the bit pattern of max|x| (ordered as NaN > infinity > finite in an integer maximum) and the sum of
/// (|x| / 2^e)^q, where e is the exponent of that maximum. Scaling by powers of two is exact, and nothing overflows.
/// Parts are merged along a fixed tree over blocks of 4,096 values, so every thread count and backend gives the same
/// bits. Factors of powers are truncated to 26 bits, so that each product is exact in double and a fused multiply-add
/// changes nothing. kernel/block_statistic.hpp has the loops over a block.

#include "../core/scale_word.hpp"
#include "order.hpp"

#include <algorithm>
#include <cmath>
#include <span>

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
  statistic r{};
  r.max_bits = a.max_bits < b.max_bits ? b.max_bits : a.max_bits;
  if (q == infinity || !r.finite()) return r;
  int const e = r.exponent();
  // the smaller part is scaled down by an exact power of two; a part that underflows is below any rounding
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

/// A double truncated to 26 significant bits: the product of two of them is exact.
GLOBALQ_FUNCTION double cut26(double x) { return double_of(bits_of(x) & ~std::uint64_t{0x7ffffff}); }

/// NaN as the one quiet NaN, everything else exact.
GLOBALQ_FUNCTION std::uint64_t as_double_bits(float x) {
  std::uint32_t const m = bits_of(x) & float_magnitude;
  if (m > float_infinity) return double_nan;
  if (m == float_infinity) return double_infinity;
  return bits_of(static_cast<double>(float_of(m)));
}

}  // namespace detail

/// One step of a power by squaring: v^(2k), or v^(2k + 1) if @p Odd.
/// @param factor  v^k with at most 26 significant bits, so that both products are exact
template <bool Odd>
GLOBALQ_FUNCTION double raised(double factor, double v) {
  double const square = factor * factor;
  return Odd ? detail::cut26(square) * v : square;
}

/// The highest bit of an order, which is the order of a power before its first step.
GLOBALQ_FUNCTION std::uint32_t highest_bit(std::uint32_t q) {
  return q == 0 ? 0 : std::uint32_t{1} << (bit_width(q) - 1);
}

namespace detail {

/// The first value of root(). For order 3 it is the root times at most 2, because tests/golden records those results;
/// for others the root within 2 %, because a step from farther above goes only 1/q of the way. Integers, so that no flag
/// changes it.
GLOBALQ_FUNCTION double near_root(double x, std::uint32_t q) {
  if (q == 3) return globalq::power_of_two(exponent_of(x) / 3 + 1);
  // the pattern of a double is about its logarithm; 2^f is about 1 + f - 11/32 f (1 - f)
  std::uint64_t const one = bits_of(1.0), log = (bits_of(x) - one) / q, f = (log >> 26) & 0x3ffffff;
  return double_of(one + log - (f * (0x4000000 - f) >> 5) * 11);
}

}  // namespace detail

/// Calls f(power), where power(|z|) is |z|^q in double. q is finite.
template <class F>
GLOBALQ_FUNCTION void with_power(std::uint32_t q, F const& f) {
  if (q == 1) return f([](double v) { return v; });
  if (q == 2) return f([](double v) { return v * v; });  // 24 bits each: exact
  f([q, first = highest_bit(q) / 2](double v) {
    double p = v;
    for (std::uint32_t bit = first; bit != 0; bit /= 2) {
      double const factor = detail::cut26(p);
      p = (q & bit) != 0 ? raised<true>(factor, v) : raised<false>(factor, v);
    }
    return p;
  });
}

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

/// The exponent with which load() scales values so that their magnitudes are below 2, within load()'s range.
GLOBALQ_FUNCTION int load_exponent(dtype type, int exponent) {
  int const low = type == dtype::float64 ? -1022 : -126, high = type == dtype::float64 ? 1023 : 127;
  int const e = -exponent;
  return e < low ? low : (e > high ? high : e);
}

/// Largest order for which powers of any float32 fit a double: 2^(-149 * 6) is normal.
inline constexpr std::uint32_t max_unscaled_order = 6;

/// x^k by squaring, each product rounded: the same bits on every machine.
/// @pre k > 0
GLOBALQ_FUNCTION double rounded_power(double x, std::uint32_t k) {
  double power = x;
  for (std::uint32_t bit = highest_bit(k) / 2; bit != 0; bit /= 2) {
    power = rounded(power * power);
    if ((k & bit) != 0) power = rounded(power * x);
  }
  return power;
}

/// x^(1/q), with the same bits on every machine: sqrt, or an even number of Newton steps in +, * and /.
/// @pre x = 0 or 1 <= x < 2^1000, 1 <= q <= 64
GLOBALQ_FUNCTION double root(double x, std::uint32_t q) {
  if (q == 1 || x == 0) return x;
  if (q == 2) return rounded(std::sqrt(x));
  double const order = static_cast<double>(q);
  double y = detail::near_root(x, q), before = y;
  for (std::uint32_t step = 1; step <= 16 + 2 * q; ++step) {
    double const quotient = rounded(x / rounded_power(y, q - 1));
    double const rest = rounded((order - 1) * y);
    y = rounded(rounded(rest + quotient) / rounded(order));  // -ffast-math would multiply by a reciprocal
    if (step % 2 != 0) continue;
    if (y == before) break;  // every later pair of steps returns it too
    before = y;
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
  return r < max ? max : r;  // despite rounding, never below the largest coordinate
}

/// The scale of a part times 2^-wide: ||x||_q, rounded up by the order and to the encoding of scales.
GLOBALQ_FUNCTION double local_scale(statistic const& s, order q, dtype type, int wide) {
  if (s.max_bits == 0) return 0;
  int const e = s.exponent() - wide;
  double const r = relative_norm(s, q);
  double const found = e < -1022 ? r * globalq::power_of_two(-1022) * globalq::power_of_two(e + 1022)
                                 : r * globalq::power_of_two(e);
  return representable(q.scale(found), q.format(type));
}

/// Rounds the scales of a vector's buckets, with two levels of scales.
/// @param scales  local_scale() of each bucket
/// @returns the scale of the vector
inline double settle_two_levels(std::span<double> scales, scale_format form) {
  double largest = 0;
  for (double scale : scales) largest = std::max(largest, scale);
  double const vector_scale = vector_scale_of(largest, form);
  for (double& scale : scales) scale = block_scale_of(scale, vector_scale, form);
  return vector_scale;
}

}  // namespace GLOBALQ_ABI::norm
