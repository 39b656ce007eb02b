// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: stochastic rounding of whole tiles to 16 bits, for AVX-512; the same bits as the portable loop.
///
/// A value becomes a number of its format with 16 more bits of fraction. The upper half of its word, inverted, is added
/// to them, which carries exactly if the word is below the fraction. Words need one byte shuffle between the generator
/// and the sum. The portable loop rounds tiles with NaNs, or with values of float16 below 2^-14 other than zero.

#include "../round_halves.hpp"
#include "halves_avx512.hpp"

#if GLOBALQ_AVX512

namespace GLOBALQ_ABI::kernel::detail {

/// A value as a number of a format with 16 more bits.
template <class Half>
class extended_halves;

template <>
class extended_halves<bfloat16> {
 public:
  explicit extended_halves(float /*factor*/) {}

  GLOBALQ_ALWAYS_INLINE void pair(float const* in, __m512i& low, __m512i& high) {
    __m512 const a = _mm512_loadu_ps(in), b = _mm512_loadu_ps(in + 16);
    ordered_ = _mm512_mask_cmp_ps_mask(ordered_, a, b, _CMP_ORD_Q);
    low = _mm512_castps_si512(a);
    high = _mm512_castps_si512(b);
  }
  /// Whether the numbers since the last call are right.
  GLOBALQ_ALWAYS_INLINE bool valid(float const* /*in*/) {
    bool const all = ordered_ == all_lanes;
    ordered_ = all_lanes;
    return all;
  }
  static bool fits(float const* /*in*/) { return true; }

 private:
  __mmask16 ordered_ = all_lanes;
};

template <>
class extended_halves<float16> {
 public:
  explicit extended_halves(float factor) : factor_(_mm512_set1_ps(factor)) {}

  GLOBALQ_ALWAYS_INLINE void pair(float const* in, __m512i& low, __m512i& high) {
    low = one(in);
    high = one(in + 16);
  }
  GLOBALQ_ALWAYS_INLINE bool valid(float const* in) {
    bool const normal = _mm512_cmp_ps_mask(least_, _mm512_set1_ps(0x1p-14F), _CMP_LT_OQ) == 0;
    least_ = _mm512_set1_ps(1);
    return normal || fits(in);
  }
  /// Whether valid() will be true of a tile: its values below 2^-14 are zero.
  [[gnu::noinline]] bool fits(float const* in) const {
    __m512i const below = _mm512_set1_epi32(0x387fffff), one = _mm512_set1_epi32(1);
    __mmask16 found = 0;
    for (int i = 0; i < tile_values; i += 16) {
      __m512i const m = _mm512_and_si512(
          _mm512_castps_si512(_mm512_maskz_mul_ps(all_lanes, _mm512_loadu_ps(in + i), factor_)),
          _mm512_set1_epi32(0x7fffffff));
      found |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(m, one), below);
    }
    return found == 0;
  }

 private:
  static constexpr int smaller_magnitude = 2, without_sign = 8;  // for vrangeps

  GLOBALQ_ALWAYS_INLINE __m512i one(float const* in) {
    // at most 2^16, also for NaN
    __m512 const x =
        _mm512_maskz_range_ps(all_lanes, _mm512_maskz_mul_ps(all_lanes, _mm512_loadu_ps(in), factor_),
                              _mm512_set1_ps(0x1p16F), smaller_magnitude);
    least_ = _mm512_maskz_range_ps(all_lanes, least_, x, smaller_magnitude | without_sign);
    // Exponents of float32 from 113 to 143 become 1 to 31: the sign and the first bit stay, three others are dropped.
    __m512i const bits = _mm512_castps_si512(x);
    return _mm512_maskz_ternarylogic_epi32(all_lanes, _mm512_set1_epi32(static_cast<int>(0xc0000000U)), bits,
                                           _mm512_maskz_slli_epi32(all_lanes, bits, 3), 0xca);
  }

  __m512 factor_, least_ = _mm512_set1_ps(1);
};

/// round_halves() for whole tiles. @pre the factor is 1 for bfloat16
template <class Half>
[[gnu::noinline]] inline void round_whole_tiles(float const* in, float factor, random::stream const& s,
                                                std::uint64_t tile, int tiles, std::uint16_t* out) {
  tile_source const source(s);
  extended_halves<Half> values(factor);
  __m512i turn[4];  // for word j of a quarter: its upper 16 bits after rotation by 0, 8, 16 and 24 bits
  for (int j = 0; j < 4; ++j)
    turn[j] = _mm512_add_epi8(
        _mm512_maskz_broadcast_i32x4(
            all_lanes, _mm_setr_epi8(2, 3, -128, -128, 1, 2, -128, -128, 0, 1, -128, -128, 3, 0, -128, -128)),
        _mm512_set1_epi8(static_cast<char>(4 * j)));
  __m512i const order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  bool wide = false;  // where one tile has values for the portable loop, the next one likely has, too
  for (int k = 0; k < tiles; ++k, ++tile, in += tile_values, out += tile_values) {
    if (__builtin_expect(wide, 0) && !values.fits(in)) {
      round_halves<Half>(in, factor, tile_values, s, tile, out);
      continue;
    }
    tile_words const drawn = source.draw<group_order::columns>(tile);
    for (int w = 0; w < 4; ++w) {
      __m512i const words = _mm512_xor_si512(drawn.word[w], _mm512_set1_epi32(-1));
      for (int j = 0; j < 4; j += 2) {
        __m512i low, high;
        values.pair(in + 64 * w + 16 * j, low, high);
        low = _mm512_add_epi32(low, _mm512_maskz_shuffle_epi8(all64, words, turn[j]));
        high = _mm512_add_epi32(high, _mm512_maskz_shuffle_epi8(all64, words, turn[j + 1]));
        __m512i const packed =
            _mm512_maskz_packus_epi32(static_cast<__mmask32>(-1), _mm512_maskz_srli_epi32(all_lanes, low, 16),
                                      _mm512_maskz_srli_epi32(all_lanes, high, 16));
        _mm512_storeu_si512(out + 64 * w + 16 * j,
                            _mm512_maskz_permutexvar_epi64(static_cast<__mmask8>(-1), order, packed));
      }
    }
    wide = !values.valid(in);
    if (__builtin_expect(wide, 0)) round_halves<Half>(in, factor, tile_values, s, tile, out);
  }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
