// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the scales of short buckets by their maximum norm, for AVX-512.

#include "magnitudes_avx512.hpp"

#include <cstdint>

#if GLOBALQ_AVX512

namespace GLOBALQ_ABI::kernel::detail {

/// Computes the scales of the buckets of 1,024 values by their maximum norm, and the gains, with eight divisions at a
/// time.
///
/// If a scale is between 2^-20 and 2^21, its word (core/scale_word.hpp) is a float with another exponent bias, and its
/// gain is a float.
/// @param bucket  128, 256, 512 or 1,024
/// @param words   one per bucket; need not be aligned
/// @param gain    one per 64 values
/// @returns false if a scale is neither zero nor in that range; nothing was written in this case
template <class Value>
inline bool scales_of_piece(Value const* x, std::uint64_t bucket, float extent, void* words, float* gain) {
  constexpr auto all8 = static_cast<__mmask8>(-1);
  constexpr int lowest = 127 - 20, highest = 127 + 20;
  __m256i top = largest_of_runs(x);
  auto const join = [&](__m256i other) {
    top = _mm256_max_epu32(top, _mm256_maskz_permutexvar_epi32(all8, other, top));
  };
  __mmask8 first = all8;  // the first run of each bucket
  if (bucket > 128) join(_mm256_setr_epi32(1, 0, 3, 2, 5, 4, 7, 6)), first = 0x55;
  if (bucket > 256) join(_mm256_setr_epi32(2, 3, 0, 1, 6, 7, 4, 5)), first = 0x11;
  if (bucket > 512) join(_mm256_setr_epi32(4, 5, 6, 7, 0, 1, 2, 3)), first = 0x01;
  __mmask8 const some = _mm256_test_epi32_mask(top, top);
  __mmask8 const outside =
      _mm256_mask_cmpge_epu32_mask(some, _mm256_sub_epi32(top, _mm256_set1_epi32(lowest << 23)),
                                   _mm256_set1_epi32((highest - lowest + 1) << 23));
  if (outside != 0) return false;
  _mm256_mask_compressstoreu_epi32(words, first,
                                   _mm256_maskz_add_epi32(some, top, _mm256_set1_epi32((256 - 127) << 23)));
  __m512d const scale = _mm512_maskz_cvtps_pd(all8, _mm256_castsi256_ps(top));
  __m256 const quotient = _mm512_maskz_cvtpd_ps(
      some, _mm512_maskz_div_pd(some, _mm512_set1_pd(static_cast<double>(extent)), scale));
  _mm512_storeu_ps(gain, _mm512_maskz_permutexvar_ps(
                             all_lanes, _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                             _mm512_castps256_ps512(quotient)));
  return true;
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
