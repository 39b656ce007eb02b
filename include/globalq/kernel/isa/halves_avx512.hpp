// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: conversion of 16-bit types for AVX-512; gives the same bits as the portable code, four times as fast.

#include "../../core/dtype.hpp"

#if GLOBALQ_AVX512

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

inline constexpr auto all_lanes = static_cast<__mmask16>(-1);
inline constexpr auto all64 = ~__mmask64{0};

/// The mask of lanes [0, count), at most all 16.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? all_lanes : static_cast<__mmask16>((1U << count) - 1U);
}

/// Calls f(first, lanes) for 16 values at a time; the mask is a constant except for the last, shorter vector.
template <class F>
GLOBALQ_ALWAYS_INLINE void for_each_vector(int count, F const& f) {
  int i = 0;
  for (; i + 16 <= count; i += 16) f(i, all_lanes);
  if (i < count) f(i, first_lanes(count - i));
}

/// Half::widen() and Half::round() for 16 values.
template <class Half>
struct halves;

template <>
struct halves<float16> {
  static __m512 widen(__m256i h) { return _mm512_maskz_cvtph_ps(all_lanes, h); }
  static __m256i round(__m512 x);
};
template <>
struct halves<bfloat16> {
  static __m512 widen(__m256i h) {
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(all_lanes, _mm512_maskz_cvtepu16_epi32(all_lanes, h), 16));
  }
  static __m256i round(__m512 x);
};

/// Loads 16 values of a vector as float32.
inline __m512 load_wide(float const* in) { return _mm512_loadu_ps(in); }
template <class Half>
inline __m512 load_wide(Half const* in) {
  return halves<Half>::widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(in)));
}

inline __m256i halves<float16>::round(__m512 x) {
  __m256i const rounded = _mm512_maskz_cvtps_ph(all_lanes, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // every NaN becomes the one quiet NaN with its sign
  return _mm256_mask_blend_epi16(
      _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded,
      _mm256_or_si256(_mm256_and_si256(rounded, _mm256_set1_epi16(-0x8000)), _mm256_set1_epi16(0x7e00)));
}

inline __m256i halves<bfloat16>::round(__m512 x) {
  __m512i const bits = _mm512_castps_si512(x);
  __m512i const odd = _mm512_and_si512(_mm512_maskz_srli_epi32(all_lanes, bits, 16), _mm512_set1_epi32(1));
  __m512i const sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  // every NaN becomes the one quiet NaN
  __m512i const rounded =
      _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
  return _mm512_maskz_cvtepi32_epi16(all_lanes, _mm512_maskz_srli_epi32(all_lanes, rounded, 16));
}

/// out = values * factor.
template <class Half>
inline void widen_halves(std::uint16_t const* in, int count, float factor, float* out) {
  for_each_vector(count, [=](int i, __mmask16 lanes) {
    __m512 const wide = halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, in + i));
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_maskz_mul_ps(lanes, wide, _mm512_set1_ps(factor)));
  });
}

/// sum = own + values.
template <class Half>
inline void add_halves(float const* own, std::uint16_t const* in, int count, float* sum) {
  for_each_vector(count, [=](int i, __mmask16 lanes) {
    __m512 const wide = halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, in + i));
    _mm512_mask_storeu_ps(sum + i, lanes,
                          _mm512_maskz_add_ps(lanes, _mm512_maskz_loadu_ps(lanes, own + i), wide));
  });
}

/// out = (0 + values) * factor * post.
/// @returns the bit pattern of the largest magnitude
template <class Half>
inline std::uint32_t scale_halves(std::uint16_t const* in, int count, store_scale const& scale, float* out) {
  __m512i const magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512 const factor = _mm512_set1_ps(scale.factor), post = _mm512_set1_ps(scale.post);
  bool const once = scale.post == 1;
  __m512i top = _mm512_setzero_si512();
  for_each_vector(count, [=, &top](int i, __mmask16 lanes) {
    __m512 const wide = halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, in + i));
    __mmask16 const some =
        _mm512_test_epi32_mask(_mm512_castps_si512(wide), magnitude);  // others are 0, not -0
    __m512 value = _mm512_maskz_mul_ps(some, wide, factor);
    if (!once) value = _mm512_maskz_mul_ps(all_lanes, value, post);
    top = _mm512_maskz_max_epu32(all_lanes, top, _mm512_and_si512(_mm512_castps_si512(value), magnitude));
    _mm512_mask_storeu_ps(out + i, lanes, value);
  });
  std::uint32_t each[16], largest = 0;
  _mm512_storeu_si512(each, top);
  for (std::uint32_t m : each) largest = largest < m ? m : largest;
  return largest;
}

/// Writes or adds scale(lanes, values).
/// @returns the bit pattern of the largest magnitude
template <class Half, bool Add, class Scale>
inline std::uint32_t round_scaled(float const* in, int count, std::uint16_t* out, Scale const& scale) {
  __m256i top = _mm256_setzero_si256();
  for_each_vector(count, [=, &top](int i, __mmask16 lanes) {
    __m512 value = scale(lanes, _mm512_maskz_loadu_ps(lanes, in + i));
    if constexpr (Add)
      value =
          _mm512_maskz_add_ps(lanes, halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, out + i)), value);
    __m256i const r = halves<Half>::round(value);
    top = _mm256_max_epu16(top, _mm256_and_si256(r, _mm256_set1_epi16(0x7fff)));
    _mm256_mask_storeu_epi16(out + i, lanes, r);
  });
  std::uint16_t each[16], largest = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(each), top);
  for (std::uint16_t m : each) largest = largest < m ? m : largest;
  return largest;
}
template <class Half, bool Add>
inline std::uint32_t round_to_halves(float const* in, int count, store_scale const& scale,
                                     std::uint16_t* out) {
  if (scale.factor == 1 && scale.post == 1)
    return round_scaled<Half, Add>(in, count, out, [](__mmask16, __m512 v) { return v; });
  __m512 const factor = _mm512_set1_ps(scale.factor), post = _mm512_set1_ps(scale.post);
  return round_scaled<Half, Add>(in, count, out, [=](__mmask16 lanes, __m512 v) {
    return _mm512_maskz_mul_ps(lanes, _mm512_maskz_mul_ps(lanes, v, factor), post);
  });
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
