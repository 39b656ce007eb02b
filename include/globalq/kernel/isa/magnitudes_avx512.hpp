// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the largest magnitude and the sum of powers of float32, in one pass, and the largest magnitudes of
/// many short runs, for AVX-512.
///
/// Products of powers are exact doubles (norm/statistic.hpp), so a fused multiply-add gives the bits of the portable loop.

#include "../../core/prefetch.hpp"
#include "../../norm/statistic.hpp"
#include "halves_avx512.hpp"

#if GLOBALQ_AVX512

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

/// The largest of 16 numbers.
inline std::uint32_t largest_lane(__m512i x) {
  constexpr auto all = static_cast<__mmask8>(-1);
  __m256i const half = _mm256_max_epu32(_mm512_maskz_extracti64x4_epi64(all, x, 0),
                                        _mm512_maskz_extracti64x4_epi64(all, x, 1));
  __m128i most = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(most));
}

/// Adds the powers of order q of count values to 16 partial sums: value i to sum i % 16.
/// @tparam Known  q, if it is one of the orders that need no scaling; 0: any order
/// @param ahead   whether to prefetch values_ahead values ahead
/// @returns the bit pattern of the largest magnitude
template <std::uint32_t Known>
inline std::uint32_t add_powers_of(float const* x, int count, std::uint32_t order, bool ahead,
                                   double* partial) {
  constexpr auto all = static_cast<__mmask8>(-1);
  std::uint32_t const q = Known != 0 ? Known : order, first = norm::highest_bit(q) / 2;
  __m512d sums[2] = {_mm512_loadu_pd(partial), _mm512_loadu_pd(partial + 8)};
  __m512i const positive = _mm512_set1_epi32(0x7fffffff);
  __m512i top = _mm512_setzero_si512();
  auto const with = [](__m512d v, std::int64_t bits) {
    return _mm512_and_pd(v, _mm512_castsi512_pd(_mm512_set1_epi64(bits)));
  };
  auto const cut = [&](__m512d v) { return with(v, -0x8000000); };  // norm::detail::cut26()
  // norm::raised() for two or four times eight values, which share the branches
  auto const add = [&]<int Eights>(float const* at, globalq::detail::fixed_count<Eights>) {
    auto const each = [](auto const& f) {  // not a loop, so that arrays are registers at any optimization
      f(0), f(1);
      if constexpr (Eights == 4) f(2), f(3);
    };
    for (int k = 0; k < Eights / 2; ++k)
      top = _mm512_maskz_max_epu32(static_cast<__mmask16>(-1), top,
                                   _mm512_and_si512(_mm512_loadu_si512(at + 16 * k), positive));
    __m512d v[Eights], power[Eights];
    each([&](int k) {
      v[k] = _mm512_maskz_cvtps_pd(all, _mm256_loadu_ps(at + 8 * k));
      if (q != 2) v[k] = with(v[k], 0x7fffffffffffffff);
      power[k] = v[k];
    });
    for (std::uint32_t bit = first; bit > 1; bit /= 2) {
      each([&](int k) { power[k] = _mm512_mul_pd(power[k], power[k]); });
      if ((q & bit) != 0) each([&](int k) { power[k] = _mm512_mul_pd(cut(power[k]), v[k]); });
      each([&](int k) { power[k] = cut(power[k]); });
    }
    each([&](int k) {
      __m512d& sum = sums[k % 2];
      if (q == 1)
        sum = _mm512_add_pd(sum, v[k]);
      else if (q % 2 == 0)
        sum = _mm512_fmadd_pd(power[k], power[k], sum);
      else
        sum = _mm512_fmadd_pd(cut(_mm512_mul_pd(power[k], power[k])), v[k], sum);
      keep_order(sum);
    });
  };
  constexpr int width = Known != 0 ? 16 : 32;
  float last[width];
  for (int i = 0; i < count; i += width) {
    if (ahead) prefetch(x + i + values_ahead, 4 * width);
    bool const whole = i + width <= count;
    for (int k = 0; !whole && k < width; k += 16) {
      int const left = count - i - k;
      auto const rest = static_cast<__mmask16>(left >= 16 ? 0xffffU : (left > 0 ? (1U << left) - 1U : 0U));
      _mm512_storeu_ps(last + k, _mm512_maskz_loadu_ps(rest, x + i + k));
    }
    add(whole ? x + i : last, globalq::detail::fixed_count<width / 8>{});
  }
  _mm512_storeu_pd(partial, sums[0]);
  _mm512_storeu_pd(partial + 8, sums[1]);
  return largest_lane(top);
}

inline std::uint32_t add_powers_of(float const* x, int count, std::uint32_t q, bool ahead, double* partial) {
  switch (q) {
    case 1:
      return add_powers_of<1>(x, count, q, ahead, partial);
    case 2:
      return add_powers_of<2>(x, count, q, ahead, partial);
    case 3:
      return add_powers_of<3>(x, count, q, ahead, partial);
    case 4:
      return add_powers_of<4>(x, count, q, ahead, partial);
    case 5:
      return add_powers_of<5>(x, count, q, ahead, partial);
    case 6:
      return add_powers_of<6>(x, count, q, ahead, partial);
    default:
      return add_powers_of<0>(x, count, q, ahead, partial);
  }
}

/// The bit pattern of the largest magnitude of count values; prefetches values_ahead values ahead.
[[gnu::noinline]] inline std::uint32_t largest_magnitude(float const* x, int count) {
  constexpr auto all = static_cast<__mmask16>(-1);
  __m512i const magnitude = _mm512_set1_epi32(0x7fffffff);
  auto const larger = [&](__m512i a, __m512i bits) {
    return _mm512_maskz_max_epu32(all, a, _mm512_and_si512(bits, magnitude));
  };
  __m512i top[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
  int i = 0;
  for (; i + 64 <= count; i += 64) {
    prefetch(x + i + values_ahead, 256);
    for (int k = 0; k < 4; ++k) top[k] = larger(top[k], _mm512_loadu_si512(x + i + 16 * k));
  }
  for (; i < count; i += 16) {
    auto const rest = static_cast<__mmask16>(count - i >= 16 ? 0xffffU : (1U << (count - i)) - 1U);
    top[0] = larger(top[0], _mm512_maskz_loadu_epi32(rest, x + i));
  }
  return largest_lane(_mm512_maskz_max_epu32(all, _mm512_maskz_max_epu32(all, top[0], top[1]),
                                             _mm512_maskz_max_epu32(all, top[2], top[3])));
}

/// Reduces 128 values to 16 lanes whose maximum is the largest bit pattern without sign.
inline __m512i largest_of_run(float const* x) {
  auto const at = [&](int i) {
    return _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), _mm512_set1_epi32(0x7fffffff));
  };
  auto const larger = [](__m512i a, __m512i b) {
    return _mm512_maskz_max_epu32(static_cast<__mmask16>(-1), a, b);
  };
  return larger(larger(larger(at(0), at(1)), larger(at(2), at(3))),
                larger(larger(at(4), at(5)), larger(at(6), at(7))));
}
template <class Half>
inline __m512i largest_of_run(Half const* x) {
  constexpr auto all = static_cast<__mmask16>(-1);
  auto const at = [&](int i) {
    return _mm512_and_si512(_mm512_loadu_si512(x + 32 * i), _mm512_set1_epi16(0x7fff));
  };
  auto const larger = [](__m512i a, __m512i b) { return _mm512_maskz_max_epu16(~__mmask32{0}, a, b); };
  __m512i const top = larger(larger(at(0), at(1)), larger(at(2), at(3)));
  return _mm512_maskz_max_epu32(all, _mm512_maskz_srli_epi32(all, top, 16),
                                _mm512_and_si512(top, _mm512_set1_epi32(0xffff)));
}

/// Converts the bit patterns of eight values to those of float32.
inline __m256i as_float32(__m256i patterns, float const*) { return patterns; }
inline __m256i as_float32(__m256i patterns, bfloat16 const*) { return _mm256_slli_epi32(patterns, 16); }
inline __m256i as_float32(__m256i patterns, float16 const*) {
  constexpr auto all = static_cast<__mmask8>(-1);
  return _mm256_castps_si256(_mm256_maskz_cvtph_ps(all, _mm256_maskz_cvtepi32_epi16(all, patterns)));
}

/// The bit patterns, as float32, of the largest magnitudes of eight runs of 128 values. Reduces the lanes of all runs
/// together.
template <class Value>
inline __m256i largest_of_runs(Value const* x) {
  constexpr auto all = static_cast<__mmask16>(-1);
  auto const larger = [](__m512i a, __m512i b) { return _mm512_maskz_max_epu32(all, a, b); };
  __m512i top[8];
  for (int r = 0; r < 8; ++r) top[r] = largest_of_run(x + 128 * r);
  // two lanes of each of two runs, then one lane of each of four runs, in every quarter of the register
  __m512i pair[4], four[2];
  for (int k = 0; k < 4; ++k)
    pair[k] = larger(_mm512_maskz_unpacklo_epi32(all, top[2 * k], top[2 * k + 1]),
                     _mm512_maskz_unpackhi_epi32(all, top[2 * k], top[2 * k + 1]));
  for (int k = 0; k < 2; ++k)
    four[k] = larger(_mm512_maskz_unpacklo_epi64(static_cast<__mmask8>(-1), pair[2 * k], pair[2 * k + 1]),
                     _mm512_maskz_unpackhi_epi64(static_cast<__mmask8>(-1), pair[2 * k], pair[2 * k + 1]));
  __m512i const quarters = larger(_mm512_maskz_shuffle_i32x4(all, four[0], four[1], 0x44),
                                  _mm512_maskz_shuffle_i32x4(all, four[0], four[1], 0xee));
  __m512i const result = larger(_mm512_maskz_shuffle_i32x4(all, quarters, quarters, 0x08),
                                _mm512_maskz_shuffle_i32x4(all, quarters, quarters, 0x0d));
  return as_float32(_mm512_maskz_extracti64x4_epi64(static_cast<__mmask8>(-1), result, 0), x);
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
