// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: reduce::exponential on 64 one-byte codes at a time, for AVX-512.
///
/// The scalar rule tests whether the low D bits of a coordinate's word are zero. The word is one of 16 words, rotated
/// by whole bytes. A byte shuffle therefore gives the low bytes of all 64 coordinates' words, and a table of masks
/// decides for D <= 8. For larger D, the scalar rule decides those that pass (at most 1 in 256 of them), so the codes
/// are the same.

#include "../../core/prefetch.hpp"
#include "exponential_lanes.hpp"
#include "halves_avx512.hpp"
#include "words_avx512.hpp"

#if GLOBALQ_AVX512

namespace GLOBALQ_ABI::kernel::detail {

/// Entry D: the low D bits of a byte.
struct alignas(64) low_bits_table {
  std::uint8_t mask[64] = {};
  constexpr low_bits_table() {
    for (int d = 0; d < 64; ++d) mask[d] = static_cast<std::uint8_t>(d >= 8 ? 255 : (1 << d) - 1);
  }
};
inline constexpr low_bits_table low_bits{};

/// Recomputes the sums of the bytes in the mask @p set by the scalar rule.
template <class Rule>
[[gnu::noinline, gnu::cold]] inline __m512i add_exactly(__m512i a, __m512i b, __m512i words,
                                                        std::uint64_t set, __m512i result) {
  alignas(64) std::int8_t x[64], y[64], sum[64];
  alignas(64) std::uint32_t word[16];
  _mm512_store_si512(x, a);
  _mm512_store_si512(y, b);
  _mm512_store_si512(word, words);
  _mm512_store_si512(sum, result);
  add_lanes<Rule>(x, y, word, set, sum);
  return _mm512_load_si512(sum);
}

/// Rule::add of 64 codes.
///
/// Let l be the code of the larger magnitude and s the other one. The sum is l or, in the rare event, l minus the sign
/// of s: equal signs double (code - 1), opposite signs halve (code + 1). It is a + b if one of them is zero, or if they
/// cancel.
/// @param words  the 16 words of a row, unrotated
/// @param seen   the magnitudes of a and b are or-ed into it
template <class Rule>
inline __m512i add_exponential(__m512i a, __m512i b, __m512i words, __m512i& seen) {
  constexpr auto all = ~__mmask64{0};
  auto const repeat = [](__m128i x) { return _mm512_maskz_broadcast_i32x4(all_lanes, x); };
  __m512i const one = _mm512_set1_epi8(1), minus_one = _mm512_set1_epi8(-1);
  __m512i const magnitude_a = _mm512_maskz_abs_epi8(all, a), magnitude_b = _mm512_maskz_abs_epi8(all, b);
  seen = _mm512_maskz_ternarylogic_epi32(all_lanes, seen, magnitude_a, magnitude_b, 0xFE);
  __m512i const e1 = _mm512_maskz_min_epu8(all, magnitude_a, magnitude_b);
  __m512i const e2 = _mm512_maskz_max_epu8(all, magnitude_a, magnitude_b);
  __m512i const plain = _mm512_add_epi8(a, b), either = _mm512_maskz_min_epu8(all, e1, plain);
  __mmask64 const usual = _mm512_test_epi8_mask(either, either);
  __m512i const larger = _mm512_mask_mov_epi8(b, _mm512_cmplt_epu8_mask(magnitude_a, magnitude_b), a);
  __m512i const smaller = _mm512_maskz_ternarylogic_epi32(all_lanes, a, b, larger, 0x96);
  __mmask64 const opposite = _mm512_movepi8_mask(_mm512_xor_si512(a, b));
  __m512i const delta = _mm512_sub_epi8(e2, e1);
  __m512i const at = _mm512_mask_add_epi8(delta, opposite, delta, minus_one);
  // byte 0 of rotate_left(word, 8 r) is byte -r of the word, modulo 4
  __m512i const random = _mm512_maskz_shuffle_epi8(
      all, words, repeat(_mm_setr_epi8(0, 3, 2, 1, 4, 7, 6, 5, 8, 11, 10, 9, 12, 15, 14, 13)));
#if defined(__AVX512VBMI__)
  // uses 6 bits of the index: above 63 there may be too many events, which add_exactly() corrects
  __m512i const mask = _mm512_maskz_permutexvar_epi8(all, at, _mm512_load_si512(low_bits.mask));
#else
  __m512i const mask =
      _mm512_maskz_shuffle_epi8(all, repeat(_mm_load_si128(reinterpret_cast<__m128i const*>(low_bits.mask))),
                                _mm512_maskz_min_epu8(all, at, _mm512_set1_epi8(15)));
#endif
  __mmask64 const event = _mm512_mask_testn_epi8_mask(usual, random, mask);
  __m512i const sign = _mm512_mask_mov_epi8(one, _mm512_movepi8_mask(smaller), minus_one);
  __m512i const sum = _mm512_mask_mov_epi8(plain, usual, _mm512_mask_sub_epi8(larger, event, larger, sign));
  __mmask64 const deep = _mm512_mask_cmpgt_epu8_mask(event, at, _mm512_set1_epi8(8));
  if (__builtin_expect(deep != 0, 0)) return add_exactly<Rule>(a, b, words, deep, sum);
  return sum;
}

/// Rule::add of the 256 codes of each of @p tiles tiles: out = a + b; out may be a or b.
///
/// The words of the next tile are drawn between the rows of this one. Otherwise their chain of multiplications would
/// fill the out-of-order window with waiting instructions.
/// @param source  source.begin(tile) starts drawing its words
/// @param ahead   prefetch distance in codes; 0: none. Prefetches are spread over the work, to avoid simultaneous
///                misses.
/// @returns the bitwise or of the magnitudes of a and b, which is at least the largest of them
template <class Rule, class Source>
[[gnu::noinline]] inline std::uint32_t add_tiles(std::int8_t const* a, std::int8_t const* b,
                                                 Source const& source, std::uint64_t tile, int tiles,
                                                 std::int8_t* out, std::size_t ahead) {
  __m512i seen = _mm512_setzero_si512();
  auto const row = [&](int at, __m512i words) {
    if (ahead != 0) {
      prefetch(a + at + ahead, 64);
      prefetch(b + at + ahead, 64);
      prefetch<true>(out + at + ahead, 64);
    }
    _mm512_storeu_si512(
        out + at, add_exponential<Rule>(_mm512_loadu_si512(a + at), _mm512_loadu_si512(b + at), words, seen));
  };
  tile_words now = [&] {
    auto words = source.begin(tile);
    words.template run<0, words.inner>();
    return words.last();
  }();
  int at = 0;
  for (int t = 1; t < tiles; ++t, at += 256) {
    auto next = source.begin(tile + static_cast<std::uint64_t>(t));
    constexpr int half = next.inner / 2;
    row(at, now.word[0]);
    next.template run<0, half>();
    row(at + 64, now.word[1]);
    next.template run<half, next.inner>();
    row(at + 128, now.word[2]);
    tile_words const drawn = next.last();
    row(at + 192, now.word[3]);
    now = drawn;
  }
  for (int w = 0; w < 4; ++w) row(at + 64 * w, now.word[w]);
  std::uint64_t lane[8];
  _mm512_storeu_si512(lane, seen);
  return bits_of_bytes(lane);
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
