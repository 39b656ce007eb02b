// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the words of a tile, for AVX-512; the same bits as the portable loop, three times as fast.
///
/// A compiler would multiply 64-bit lanes and move halves between vectors in every round. Here each half of the 16
/// groups stays in the low words of 64-bit lanes, where vpmuludq reads them; the high words are used only to join the
/// halves in the last round. The first two rounds process the counter words that all groups share as scalars. Masked
/// intrinsics give the plain instructions; for the unmasked ones, g++ 12 warns about its own header.

#include "../../core/arithmetic.hpp"

#if GLOBALQ_AVX512

#include "round_keys.hpp"

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

/// The lane of each group of a tile.
enum class group_order {
  ascending,  ///< group l in lane l
  columns     ///< the transpose of a 4 x 4 matrix: group 4 d + i in lane 4 i + d
};

/// The words of the 16 groups of a tile: word w of all groups, in the given order.
struct tile_words {
  __m512i word[4];
};

/// Draws the words of a tile, in steps: its chain of multiplications leaves room for other work between the rounds.
template <group_order Order, int Rounds>
class philox_rounds {
 public:
  /// Computes the first two rounds.
  /// @param counter  of group 0 (its first word a multiple of 16)
  GLOBALQ_ALWAYS_INLINE philox_rounds(std::uint32_t const (&counter)[4], round_keys<Rounds> const& keys)
      : keys_(keys) {
    // round 1: only the first word differs between groups; round 2: only the product of the third
    std::uint64_t const q1 = std::uint64_t{m1} * counter[2];
    std::uint32_t const a0 = static_cast<std::uint32_t>(q1 >> 32) ^ counter[1] ^
                             static_cast<std::uint32_t>(keys.key[0][0]),
                        a1 = static_cast<std::uint32_t>(q1);
    std::uint64_t const p2 = std::uint64_t{m0} * a0;
    // the halves are the groups of even lanes and those of odd lanes
    constexpr bool ascending = Order == group_order::ascending;
    __m512i const even = ascending ? _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14)
                                   : _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    for (int half = 0; half < 2; ++half) {
      __m512i const lane =
          _mm512_add_epi64(even, same(counter[0] + (ascending ? 1U : 4U) * static_cast<std::uint32_t>(half)));
      __m512i const p = _mm512_maskz_mul_epu32(all, lane, same(m0));
      __m512i const c2 =
          _mm512_xor_si512(high(p), same(counter[3] ^ static_cast<std::uint32_t>(keys.key[0][1])));
      __m512i const q = _mm512_maskz_mul_epu32(all, c2, same(m1));
      c_[half][0] = _mm512_xor_si512(high(q), same(a1 ^ static_cast<std::uint32_t>(keys.key[1][0])));
      c_[half][1] = q;
      c_[half][2] = _mm512_xor_si512(
          p, same(static_cast<std::uint32_t>(p2 >> 32) ^ static_cast<std::uint32_t>(keys.key[1][1])));
      c_[half][3] = same(static_cast<std::uint32_t>(p2));
    }
  }

  /// Rounds between the first two and the last.
  static constexpr int inner = Rounds - 3;

  /// Computes inner rounds [First, Last).
  template <int First, int Last>
  GLOBALQ_ALWAYS_INLINE void run() {
    for (int r = First; r < Last; ++r) {
      std::uint64_t const* const key = keys_.key[2 + r];
      for (auto& x : c_) {
        __m512i const p = _mm512_maskz_mul_epu32(all, x[0], same(m0)),
                      q = _mm512_maskz_mul_epu32(all, x[2], same(m1));
        x[0] = mixed(high(q), x[1], same(key[0]));
        x[2] = mixed(high(p), x[3], same(key[1]));
        x[1] = q;
        x[3] = p;
      }
    }
  }

  /// Computes the last round, after all inner ones.
  GLOBALQ_ALWAYS_INLINE tile_words last() const {
    // first joins the low, or high, words of both halves
    constexpr __mmask16 evens = 0x5555, odds = 0xaaaa;
    auto const lows = [](__m512i a, __m512i b) {
      return _mm512_mask_shuffle_epi32(a, odds, b, _MM_PERM_CCAA);
    };
    auto const highs = [](__m512i a, __m512i b) {
      return _mm512_mask_shuffle_epi32(b, evens, a, _MM_PERM_DDBB);
    };
    __m512i p[2], q[2];
    for (int half = 0; half < 2; ++half) {
      p[half] = _mm512_maskz_mul_epu32(all, c_[half][0], same(m0));
      q[half] = _mm512_maskz_mul_epu32(all, c_[half][2], same(m1));
    }
    tile_words t;
    t.word[0] = mixed(highs(q[0], q[1]), lows(c_[0][1], c_[1][1]), last_key(0));
    t.word[1] = lows(q[0], q[1]);
    t.word[2] = mixed(highs(p[0], p[1]), lows(c_[0][3], c_[1][3]), last_key(1));
    t.word[3] = lows(p[0], p[1]);
    return t;
  }

 private:
  static constexpr std::uint32_t m0 = 0xD2511F53U, m1 = 0xCD9E8D57U;
  static constexpr auto all = static_cast<__mmask8>(-1);

  static __m512i same(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  // a shuffle rather than a shift: shifts share a port with much of the code interleaved with this
  static __m512i high(__m512i x) {
    return _mm512_maskz_shuffle_epi32(static_cast<__mmask16>(-1), x, _MM_PERM_DDBB);
  }
  /// For lanes of 32 bits.
  __m512i last_key(int which) const {
    return _mm512_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(keys_.key[Rounds - 1][which])));
  }
  static __m512i mixed(__m512i a, __m512i b, __m512i c) {
    return _mm512_maskz_ternarylogic_epi64(all, a, b, c, 0x96);
  }

  round_keys<Rounds> const& keys_;
  __m512i c_[2][4];
};

/// The word of every value: each word four times, rotated by 0, 8, 16 and 24 bits.
/// @param t  in ascending order
inline void spread(tile_words const& t, std::uint32_t* out) {
  for (int w = 0; w < 4; ++w) {
    for (int k = 0; k < 4; ++k) {
      __m512i const lane = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                            _mm512_set1_epi32(4 * k));
      __m512i const turn = _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24);
      constexpr auto all = static_cast<__mmask16>(-1);
      _mm512_storeu_si512(
          out + 64 * w + 16 * k,
          _mm512_maskz_rolv_epi32(all, _mm512_maskz_permutexvar_epi32(all, lane, t.word[w]), turn));
    }
  }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
