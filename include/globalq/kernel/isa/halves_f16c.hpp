// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: conversion of 16-bit types for AVX2 and F16C, which all processors with AVX2 have; the same bits as the
/// portable code.
///
/// Compilers also vectorize float16::widen() and round(), with some twenty instructions each, and widen bfloat16 well, but
/// not round() with the largest magnitude. float16 subnormals are kept even if the processor flushes those of float32 to
/// zero.

#include "../../core/dtype.hpp"
#include "as_is.hpp"

#if GLOBALQ_AVX2 && defined(__F16C__)

#include <immintrin.h>

#include <cstring>

namespace GLOBALQ_ABI::kernel::detail {

inline __m256 widen_eight(std::uint16_t const* in) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(in)));
}

/// Half::round() and widen() of eight values.
template <class Half>
struct eight_halves;

template <>
struct eight_halves<float16> {
  static __m256 widen(std::uint16_t const* in) { return widen_eight(in); }
  static __m128i round(__m256 x) {
    __m128i const rounded = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // every NaN becomes the one quiet NaN with its sign
    __m256i const nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m128i const nans = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    __m128i const quiet =
        _mm_or_si128(_mm_and_si128(rounded, _mm_set1_epi16(-0x8000)), _mm_set1_epi16(0x7e00));
    return _mm_blendv_epi8(rounded, quiet, nans);
  }
};
template <>
struct eight_halves<bfloat16> {
  static __m256 widen(std::uint16_t const* in) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<__m128i const*>(in))), 16));
  }
  static __m128i round(__m256 x) {
    __m256i const bits = _mm256_castps_si256(x);
    __m256i const odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i const sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    // every NaN becomes the one quiet NaN
    __m256 const rounded =
        _mm256_blendv_ps(_mm256_castsi256_ps(sum), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                         _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i const upper = _mm256_srli_epi32(_mm256_castps_si256(rounded), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};

/// out = values * factor.
inline void widen_float16(std::uint16_t const* in, int count, float factor, float* out) {
  __m256 const f = _mm256_set1_ps(factor);
  int i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(widen_eight(in + i), f));
  if (i == count) return;
  std::uint16_t rest[8] = {};
  float wide[8];
  std::memcpy(rest, in + i, static_cast<std::size_t>(count - i) * sizeof *rest);
  _mm256_storeu_ps(wide, _mm256_mul_ps(widen_eight(rest), f));
  std::memcpy(out + i, wide, static_cast<std::size_t>(count - i) * sizeof *wide);
}

/// sum = own + values.
inline void add_float16(float const* own, std::uint16_t const* in, int count, float* sum) {
  int i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(own + i), widen_eight(in + i)));
  for (; i < count; ++i) sum[i] = own[i] + float16::widen(in[i]);
}

/// out = (0 + values) * factor * post.
/// @returns the bit pattern of the largest magnitude
inline std::uint32_t scale_float16(std::uint16_t const* in, int count, store_scale const& scale, float* out) {
  __m256 const factor = _mm256_set1_ps(scale.factor), post = _mm256_set1_ps(scale.post);
  __m256i const magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256i const wide = _mm256_castps_si256(widen_eight(in + i));
    __m256i const some = _mm256_cmpgt_epi32(_mm256_and_si256(wide, magnitude), _mm256_setzero_si256());
    __m256 const value =
        _mm256_mul_ps(as_is(_mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(wide, some)), factor)),
                      post);  // 0 instead of -0
    top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(value), magnitude));
    _mm256_storeu_ps(out + i, value);
  }
  std::uint32_t each[8], largest = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(each), top);
  for (std::uint32_t m : each) largest = largest < m ? m : largest;
  for (; i < count; ++i) {
    bool const zero = (in[i] & 0x7fffU) == 0;
    out[i] = scale(zero ? 0.0F : float16::widen(in[i]));
    std::uint32_t const m = bits_of(out[i]) & float_magnitude;
    largest = largest < m ? m : largest;
  }
  return largest;
}

/// Writes or adds values * factor * post.
/// @returns the bit pattern of the largest magnitude
template <class Half, bool Add>
inline std::uint32_t round_to_halves(float const* in, int count, store_scale const& scale,
                                     std::uint16_t* out) {
  __m256 const factor = _mm256_set1_ps(scale.factor), post = _mm256_set1_ps(scale.post);
  __m128i top = _mm_setzero_si128();
  auto const eight = [&](float const* from, std::uint16_t* to) {
    __m256 value = as_is(_mm256_mul_ps(as_is(_mm256_mul_ps(_mm256_loadu_ps(from), factor)), post));
    if constexpr (Add) value = _mm256_add_ps(eight_halves<Half>::widen(to), value);
    __m128i const r = eight_halves<Half>::round(value);
    top = _mm_max_epu16(top, _mm_and_si128(r, _mm_set1_epi16(0x7fff)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), r);
  };
  int i = 0;
  for (; i + 8 <= count; i += 8) eight(in + i, out + i);
  if (i < count) {
    float last[8] = {};
    std::uint16_t there[8] = {};
    auto const rest = static_cast<std::size_t>(count - i);
    std::memcpy(last, in + i, rest * sizeof *last);
    if constexpr (Add) std::memcpy(there, out + i, rest * sizeof *there);
    eight(last, there);
    std::memcpy(out + i, there, rest * sizeof *there);
  }
  std::uint16_t each[8], largest = 0;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(each), top);
  for (std::uint16_t m : each) largest = largest < m ? m : largest;
  return largest;
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
