// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: 16-bit types written out for AVX-512: the bits of the portable twins, four times as fast.

#include "../arithmetic.hpp"

#if GLOBALQ_AVX512

#include <immintrin.h>

namespace GLOBALQ_ABI {
struct float16;
struct bfloat16;
}  // namespace GLOBALQ_ABI

namespace GLOBALQ_ABI::detail {

inline constexpr auto all_lanes = static_cast<__mmask16>(-1);

/// Lanes [0, count) of 16, or all where that is more.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? all_lanes : static_cast<__mmask16>((1U << count) - 1U);
}

/// f(first, lanes) for 16 values after the other; all of them where that is known when compiling.
template <class F>
GLOBALQ_ALWAYS_INLINE void for_each_vector(int count, F const& f) {
  int i = 0;
  for (; i + 16 <= count; i += 16) f(i, all_lanes);
  if (i < count) f(i, first_lanes(count - i));
}

/// Half::widen() and Half::round() of 16 values.
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

/// 16 values of a vector as float32.
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

}  // namespace GLOBALQ_ABI::detail

#endif
