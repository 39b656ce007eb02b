// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: float16 by the conversion instructions of AVX-512: the bits of the portable twins, four times as fast.

#include "../arithmetic.hpp"

#if GLOBALQ_AVX512

#include <immintrin.h>

namespace globalq::detail {

inline constexpr auto all_lanes = static_cast<__mmask16>(-1);

/// Lanes [0, count) of 16, or all where that is more.
inline __mmask16 first_lanes(int count) {
  return count >= 16 ? all_lanes : static_cast<__mmask16>((1U << count) - 1U);
}

/// float16::widen() of the lanes in @p lanes.
inline __m512 widen_halves(std::uint16_t const* in, __mmask16 lanes) {
  return _mm512_maskz_cvtph_ps(all_lanes, _mm256_maskz_loadu_epi16(lanes, in));
}

/// float16::round() of 16 values.
inline __m256i round_to_halves(__m512 x) {
  __m256i const rounded = _mm512_maskz_cvtps_ph(all_lanes, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // every NaN becomes the one quiet NaN with its sign
  return _mm256_mask_blend_epi16(
      _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded,
      _mm256_or_si256(_mm256_and_si256(rounded, _mm256_set1_epi16(-0x8000)), _mm256_set1_epi16(0x7e00)));
}

}  // namespace globalq::detail

#endif
