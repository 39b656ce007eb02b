// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the words of correlated rounding, for AVX2. g++ 12 vectorizes the upper halves of products in 2.3 times the
///        time (it rearranges all lanes).

#include "../../rounding/correlated.hpp"

#if GLOBALQ_AVX512 || GLOBALQ_AVX2

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

/// rounding.compared() of count values; count is a multiple of 8.
inline void compared_in_part(rounding::detail::stratified const& rounding, float const* z, int count,
                             std::uint32_t const* words, std::uint32_t* out) {
  __m256i const start = _mm256_set1_epi32(static_cast<int>(rounding.start)),
                width = _mm256_set1_epi32(static_cast<int>(rounding.width));
  for (int i = 0; i < count; i += 8) {
    __m256i const drawn = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(words + i)),
                  even = _mm256_mul_epu32(drawn, width),
                  odd = _mm256_mul_epu32(_mm256_srli_epi64(drawn, 32), width),
                  upper = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
                  sign = _mm256_srai_epi32(_mm256_castps_si256(_mm256_loadu_ps(z + i)), 31);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_xor_si256(_mm256_add_epi32(upper, start), sign));
  }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
