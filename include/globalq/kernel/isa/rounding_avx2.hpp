// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: stochastic rounding of whole tiles to 16 bits, for AVX2 and F16C; the same bits as the portable loop.
///
/// The upper bits of a word, inverted, are added below the last bit of the result, and carry exactly if the word is below
/// the fraction (see rounding_avx512.hpp). The portable loop rounds tiles with NaNs, and for float16 those with values
/// outside [2^-14, 2^16) other than zero.

#include "../round_halves.hpp"

#if GLOBALQ_AVX2 && defined(__F16C__)

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel::detail {

/// Rounds eight values with the upper halves of their words, inverted.
template <class Half>
class rounded_halves;

template <>
class rounded_halves<bfloat16> {
 public:
  explicit rounded_halves(float /*factor*/) {}

  GLOBALQ_ALWAYS_INLINE void pair(float const* in, __m256i low, __m256i high, std::uint16_t* out) {
    __m256 const a = _mm256_loadu_ps(in), b = _mm256_loadu_ps(in + 8);
    unordered_ = _mm256_or_ps(unordered_, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    __m256i const packed = _mm256_packus_epi32(upper(a, low), upper(b, high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  /// Whether the numbers since the last call are right.
  GLOBALQ_ALWAYS_INLINE bool valid(float const* /*in*/) {
    bool const none = _mm256_movemask_ps(unordered_) == 0;
    unordered_ = _mm256_setzero_ps();
    return none;
  }
  static bool fits(float const* /*in*/) { return true; }

 private:
  static __m256i upper(__m256 x, __m256i word) {
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x), word), 16);
  }

  __m256 unordered_ = _mm256_setzero_ps();
};

template <>
class rounded_halves<float16> {
 public:
  explicit rounded_halves(float factor) : factor_(_mm256_set1_ps(factor)) {}

  GLOBALQ_ALWAYS_INLINE void pair(float const* in, __m256i low, __m256i high, std::uint16_t* out) {
    one(in, low, out);
    one(in + 8, high, out + 8);
  }
  GLOBALQ_ALWAYS_INLINE bool valid(float const* in) {
    bool const normal = all_below(farthest_, beyond);
    farthest_ = _mm256_setzero_si256();
    return normal || fits(in);
  }
  /// Whether valid() will be true of a tile.
  [[gnu::noinline]] bool fits(float const* in) const {
    __m256i farthest = _mm256_setzero_si256();
    for (int i = 0; i < tile_values; i += 8) {
      __m256i const x = load(in + i),
                    zero = _mm256_cmpeq_epi32(_mm256_add_epi32(x, x), _mm256_setzero_si256());
      farthest = _mm256_max_epu32(farthest, _mm256_andnot_si256(zero, above_least(x)));
    }
    return all_below(farthest, beyond);
  }

 private:
  /// Magnitudes from 2^-14 on, below 2^16: bit patterns, and their number.
  static constexpr int least = 0x38800000, beyond = 0x0f000000;

  GLOBALQ_ALWAYS_INLINE __m256i load(float const* in) const {
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(in), factor_));
  }
  static __m256i above_least(__m256i x) {
    return _mm256_sub_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(least));
  }
  /// Whether all, as unsigned numbers, are below a limit.
  static bool all_below(__m256i x, int limit) {
    __m256i const most = _mm256_set1_epi32(limit - 1);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_max_epu32(x, most), most)) == -1;
  }
  GLOBALQ_ALWAYS_INLINE void one(float const* in, __m256i word, std::uint16_t* out) {
    __m256i const x = load(in), sum = _mm256_add_epi32(x, _mm256_srli_epi32(word, 3));
    farthest_ = _mm256_max_epu32(farthest_, above_least(x));
    __m256 const exact = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(-0x2000)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  __m256 factor_;
  __m256i farthest_ = _mm256_setzero_si256();
};

/// round_halves() for whole tiles. @pre the factor is 1 for bfloat16
template <class Half>
[[gnu::noinline]] inline void round_whole_tiles(float const* in, float factor, random::stream const& s,
                                                std::uint64_t tile, int tiles, std::uint16_t* out) {
  tile_source const source(s);
  rounded_halves<Half> rounded(factor);
  __m256i
      turn[4];  // for vector j of four: the upper 16 bits of its words after rotation by 0, 8, 16 and 24 bits
  for (int j = 0; j < 4; ++j)
    turn[j] = _mm256_add_epi8(_mm256_broadcastsi128_si256(_mm_setr_epi8(2, 3, -128, -128, 1, 2, -128, -128, 0,
                                                                        1, -128, -128, 3, 0, -128, -128)),
                              _mm256_set1_epi8(static_cast<char>(4 * j)));
  bool wide = false;  // where one tile has values for the portable loop, the next one likely has, too
  for (int k = 0; k < tiles; ++k, ++tile, in += tile_values, out += tile_values) {
    if (__builtin_expect(wide, 0) && !rounded.fits(in)) {
      round_halves<Half>(in, factor, tile_values, s, tile, out);
      continue;
    }
    tile_words const drawn = source.draw<group_order::columns>(tile);
    for (int w = 0; w < 4; ++w)
      for (int h = 0; h < 2; ++h) {
        __m256i const words = _mm256_xor_si256(drawn.word[w][h], _mm256_set1_epi32(-1));
        for (int j = 0; j < 4; j += 2) {
          int const at = 64 * w + 32 * h + 8 * j;
          rounded.pair(in + at, _mm256_shuffle_epi8(words, turn[j]), _mm256_shuffle_epi8(words, turn[j + 1]),
                       out + at);
        }
      }
    wide = !rounded.valid(in);
    if (__builtin_expect(wide, 0)) round_halves<Half>(in, factor, tile_values, s, tile, out);
  }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
