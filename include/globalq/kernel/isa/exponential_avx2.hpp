// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: reduce::exponential on 32 one-byte codes at a time, for AVX2; the method is that of
/// exponential_avx512.hpp.

#include "../../core/prefetch.hpp"
#include "exponential_lanes.hpp"
#include "words_avx2.hpp"

#if GLOBALQ_AVX2

namespace GLOBALQ_ABI::kernel::detail {

/// Recomputes the sums of the bytes in the mask @p set by the scalar rule.
template <class Rule>
[[gnu::noinline, gnu::cold]] inline __m256i add_exactly(__m256i a, __m256i b, __m256i words,
                                                        std::uint32_t set, __m256i result) {
  alignas(32) std::int8_t x[32], y[32], sum[32];
  alignas(32) std::uint32_t word[8];
  auto const store = [](void* to, __m256i v) { _mm256_store_si256(static_cast<__m256i*>(to), v); };
  store(x, a);
  store(y, b);
  store(word, words);
  store(sum, result);
  add_lanes<Rule>(x, y, word, set, sum);
  return _mm256_load_si256(reinterpret_cast<__m256i const*>(sum));
}

/// Rule::add of 32 codes. Let l be the code of the larger magnitude and s the other one. The sum is l or, in the rare
/// event, l minus the sign of s. It is a + b if one of them is zero, or if they cancel.
/// @param words  8 words, unrotated
/// @param seen   the magnitudes of a and b are or-ed into it
template <class Rule>
GLOBALQ_ALWAYS_INLINE __m256i add_exponential(__m256i a, __m256i b, __m256i words, __m256i& seen) {
  auto const repeat = [](__m128i x) { return _mm256_broadcastsi128_si256(x); };
  __m256i const zero = _mm256_setzero_si256();
  __m256i const magnitude_a = _mm256_abs_epi8(a), magnitude_b = _mm256_abs_epi8(b);
  seen = _mm256_or_si256(seen, _mm256_or_si256(magnitude_a, magnitude_b));
  __m256i const e1 = _mm256_min_epu8(magnitude_a, magnitude_b),
                e2 = _mm256_max_epu8(magnitude_a, magnitude_b);
  __m256i const plain = _mm256_add_epi8(a, b), unlike = _mm256_xor_si256(a, b);
  __m256i const unusual = _mm256_cmpeq_epi8(_mm256_min_epu8(e1, plain), zero);
  __m256i const larger = _mm256_blendv_epi8(b, a, _mm256_cmpeq_epi8(e1, magnitude_a));
  __m256i const smaller = _mm256_xor_si256(unlike, larger);
  // one less if the signs differ
  __m256i const at = _mm256_add_epi8(_mm256_sub_epi8(e2, e1), _mm256_cmpgt_epi8(zero, unlike));
  // byte 0 of rotate_left(word, 8 r) is byte -r of the word, modulo 4
  __m256i const random =
      _mm256_shuffle_epi8(words, repeat(_mm_setr_epi8(0, 3, 2, 1, 4, 7, 6, 5, 8, 11, 10, 9, 12, 15, 14, 13)));
  // entry D: the low D bits of a byte
  __m256i const mask =
      _mm256_shuffle_epi8(repeat(_mm_setr_epi8(0, 1, 3, 7, 15, 31, 63, 127, -1, -1, -1, -1, -1, -1, -1, -1)),
                          _mm256_min_epu8(at, _mm256_set1_epi8(15)));
  __m256i const event = _mm256_andnot_si256(unusual, _mm256_cmpeq_epi8(_mm256_and_si256(random, mask), zero));
  __m256i const sign = _mm256_sign_epi8(_mm256_and_si256(event, _mm256_set1_epi8(1)), smaller);
  __m256i const sum = _mm256_sub_epi8(_mm256_blendv_epi8(larger, plain, unusual), sign);
  __m256i const deep = _mm256_and_si256(event, _mm256_cmpgt_epi8(at, _mm256_set1_epi8(8)));
  auto const set = static_cast<std::uint32_t>(_mm256_movemask_epi8(deep));
  if (__builtin_expect(set != 0, 0)) return add_exactly<Rule>(a, b, words, set, sum);
  return sum;
}

/// Rule::add of the 256 codes of each of @p tiles tiles: out = a + b; out may be a or b.
/// @param source  source(tile) returns its words
/// @param ahead   prefetch distance in codes; 0: none. Prefetches are spread over the work, to avoid simultaneous
///                misses.
/// @returns the bitwise or of the magnitudes of a and b, which is at least the largest of them
template <class Rule, class Source>
[[gnu::noinline]] inline std::uint32_t add_tiles(std::int8_t const* a, std::int8_t const* b,
                                                 Source const& source, std::uint64_t tile, int tiles,
                                                 std::int8_t* out, std::size_t ahead) {
  __m256i seen = _mm256_setzero_si256();
  auto const load = [](std::int8_t const* p) {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(p));
  };
  for (int t = 0; t < tiles; ++t) {
    tile_words const drawn = source(tile + static_cast<std::uint64_t>(t));
    for (auto const& word : drawn.word) {
      if (ahead != 0) {
        prefetch(a + ahead, 64);
        prefetch(b + ahead, 64);
        prefetch<true>(out + ahead, 64);
      }
      for (__m256i const words : word) {
        __m256i const sum = add_exponential<Rule>(load(a), load(b), words, seen);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), sum);
        a += 32;
        b += 32;
        out += 32;
      }
    }
  }
  std::uint64_t lane[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lane), seen);
  return bits_of_bytes(lane);
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
