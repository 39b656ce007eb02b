// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the words of a tile, for AVX2; the same bits as the portable loop.
///
/// As for AVX-512 (words_avx512.hpp), groups stay in the low words of 64-bit lanes, where vpmuludq reads them. The high
/// words are used only to join halves in the last round. Eight groups are processed at a time: their words and the
/// operands of a round fit in sixteen registers.

#include "../../core/arithmetic.hpp"

#if GLOBALQ_AVX2

#include "round_keys.hpp"

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

/// The lane of each of eight groups.
enum class group_order {
  ascending,  ///< group l in lane l
  columns     ///< the transpose of a 4 x 2 matrix: group 2 d + i in lane 4 i + d
};

/// The words of the 16 groups of a tile: word w of groups 0 to 7, and of 8 to 15, in the given order.
struct tile_words {
  __m256i word[4][2];
};

/// The words of groups 8 @p half to 8 half + 7 of a tile.
/// @param counter  of group 0 (its first word a multiple of 16)
template <group_order Order, int Rounds>
GLOBALQ_ALWAYS_INLINE void draw_half(std::uint32_t const (&counter)[4], round_keys<Rounds> const& keys,
                                     int half, tile_words& t) {
  constexpr std::uint32_t m0 = 0xD2511F53U, m1 = 0xCD9E8D57U;
  auto const same = [](std::uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); };
  auto const high = [](__m256i x) { return _mm256_srli_epi64(x, 32); };
  auto const mixed = [](__m256i a, __m256i b, __m256i c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
  };
  // round 1: only the first word differs between groups; round 2: only the product of the third
  std::uint64_t const q1 = std::uint64_t{m1} * counter[2];
  std::uint32_t const a0 =
      static_cast<std::uint32_t>(q1 >> 32) ^ counter[1] ^ static_cast<std::uint32_t>(keys.key[0][0]);
  std::uint64_t const p2 = std::uint64_t{m0} * a0;
  constexpr bool ascending = Order == group_order::ascending;
  __m256i const first = ascending ? _mm256_setr_epi64x(0, 2, 4, 6) : _mm256_setr_epi64x(0, 4, 1, 5);
  __m256i c[2][4];  // groups of even lanes, and of odd ones
  for (int odd = 0; odd < 2; ++odd) {
    __m256i const lane = _mm256_add_epi64(
        first, same(counter[0] + static_cast<std::uint32_t>(8 * half + (ascending ? 1 : 2) * odd)));
    __m256i const p = _mm256_mul_epu32(lane, same(m0));
    __m256i const c2 =
        _mm256_xor_si256(high(p), same(counter[3] ^ static_cast<std::uint32_t>(keys.key[0][1])));
    __m256i const q = _mm256_mul_epu32(c2, same(m1));
    c[odd][0] = _mm256_xor_si256(
        high(q), same(static_cast<std::uint32_t>(q1) ^ static_cast<std::uint32_t>(keys.key[1][0])));
    c[odd][1] = q;
    c[odd][2] = _mm256_xor_si256(
        p, same(static_cast<std::uint32_t>(p2 >> 32) ^ static_cast<std::uint32_t>(keys.key[1][1])));
    c[odd][3] = same(static_cast<std::uint32_t>(p2));
  }
  for (int r = 2; r < Rounds - 1; ++r)
    for (auto& x : c) {
      __m256i const p = _mm256_mul_epu32(x[0], same(m0)), q = _mm256_mul_epu32(x[2], same(m1));
      x[0] = mixed(high(q), x[1], same(keys.key[r][0]));
      x[2] = mixed(high(p), x[3], same(keys.key[r][1]));
      x[1] = q;
      x[3] = p;
    }
  // the last round first joins the low, or high, words of even and odd groups
  auto const lows = [](__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, _MM_SHUFFLE(2, 2, 0, 0)), 0xaa);
  };
  auto const highs = [](__m256i even, __m256i odd) {
    return _mm256_blend_epi32(_mm256_shuffle_epi32(even, _MM_SHUFFLE(3, 3, 1, 1)), odd, 0xaa);
  };
  auto const last_key = [&](int which) {
    return _mm256_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(keys.key[Rounds - 1][which])));
  };
  __m256i p[2], q[2];
  for (int odd = 0; odd < 2; ++odd) {
    p[odd] = _mm256_mul_epu32(c[odd][0], same(m0));
    q[odd] = _mm256_mul_epu32(c[odd][2], same(m1));
  }
  t.word[0][half] = mixed(highs(q[0], q[1]), lows(c[0][1], c[1][1]), last_key(0));
  t.word[1][half] = lows(q[0], q[1]);
  t.word[2][half] = mixed(highs(p[0], p[1]), lows(c[0][3], c[1][3]), last_key(1));
  t.word[3][half] = lows(p[0], p[1]);
}

/// The word of every value: each word four times, rotated by 0, 8, 16 and 24 bits.
/// @param t  in ascending order
inline void spread(tile_words const& t, std::uint32_t* out) {
  __m256i const turn =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 3, 0, 1, 2, 2, 3, 0, 1, 1, 2, 3, 0));
  for (int w = 0; w < 4; ++w)
    for (int k = 0; k < 8; ++k) {
      __m256i const lane =
          _mm256_add_epi32(_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), _mm256_set1_epi32(2 * (k % 4)));
      __m256i const words = _mm256_permutevar8x32_epi32(t.word[w][k / 4], lane);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 * w + 8 * k), _mm256_shuffle_epi8(words, turn));
    }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
