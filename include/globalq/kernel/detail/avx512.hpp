// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: stochastic codes of one byte of whole tiles, written out for AVX-512.
///
/// A word decides by its upper 24 bits: t becomes 24 bits of fraction below 8 bits that say between which levels, and
/// after subtracting the word's bits the upper byte is the code but for one. So words go from the generator to the
/// subtraction by one byte shuffle, and clamping, signs and what else there is happens to bytes. Where the 24 bits are
/// equal (1 value in 2^24) the lower ones would decide: that tile is left to the portable loop.

#include "../../core/prefetch.hpp"
#include "../../random/stream.hpp"
#include "../loops.hpp"

#if !GLOBALQ_AVX512

namespace globalq::kernel::detail {

/// Whether codes_of_tiles() exists.
template <class Levels, class Rounding, class Lane>
inline constexpr bool has_codes_of_tiles = false;

template <class Levels, class Rounding>
void codes_of_tiles(Levels const&, Rounding const&, float const*, float const*, random::stream const&,
                    std::uint64_t, int, std::int8_t*, std::size_t);  // never called

}  // namespace globalq::kernel::detail

#else

namespace globalq::levels {
template <std::uint32_t S>
class uniform;
struct binary;
template <std::uint32_t S, class Base>
class exponential;
}  // namespace globalq::levels

namespace globalq::rounding {
struct stochastic;
}

namespace globalq::kernel::detail {

using random::tile_values;

inline constexpr auto all16 = static_cast<__mmask16>(-1);
inline constexpr auto all64 = ~__mmask64{0};

/// The bits of |x|, in float lanes.
inline __m512 magnitude(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(float_magnitude))));
}

/// The upper bytes of four vectors of words, in the order of the words.
inline __m512i upper_bytes(__m512i const (&s)[4]) {
  auto const upper = [](__m512i low, __m512i high) {  // of each pair of words the upper halves
    return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_maskz_srli_epi32(all16, low, 16), high);
  };
  __m512i const even = upper(s[0], s[2]), odd = upper(s[1], s[3]);
  __m512i const bytes =
      _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaaULL, _mm512_maskz_srli_epi16(~__mmask32{0}, even, 8), odd);
  // byte j of word d of quarter i belongs to value 16 j + 4 i + d
  __m512i const inside = _mm512_maskz_shuffle_epi8(
      all64, bytes,
      _mm512_maskz_broadcast_i32x4(all16,
                                   _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  return _mm512_maskz_permutexvar_epi32(
      all16, _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), inside);
}

/// The masks of 16 values each, as one.
inline __mmask64 joined(__mmask16 a, __mmask16 b, __mmask16 c, __mmask16 d) {
  return _mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a));
}

/// How levels become bytes.
template <class Levels>
struct byte_levels;

/// t * 2^24 as an integer: the levels are whole numbers.
template <std::uint32_t S>
struct byte_levels<levels::uniform<S>> {
  static constexpr float scale = 0x1p24F;
  __m512i largest;

  explicit byte_levels(levels::uniform<S> const& levels)
      : largest(_mm512_set1_epi8(static_cast<char>(levels.max_code()))) {}

  static __m512i fixed(__m512 t) { return _mm512_maskz_cvttps_epi32(all16, magnitude(t)); }
  static constexpr bool exact = false;  ///< below 1/2 t has more than 24 bits of fraction

  template <class Above>
  __m512i code(__m512i upper, Above const& /*above*/) const {
    return _mm512_maskz_min_epu8(all64, upper, largest);
  }
};

/// The bits of t without its sign: the exponent says between which levels, and the mantissa is the fraction.
template <std::uint32_t S>
struct byte_levels<levels::exponential<S, levels::binary>> {
  static constexpr float scale = 1;
  __m512i first, last, sum;  ///< exponents of the largest and the smallest level; exponent plus code of any
  __m512 stretch;            ///< brings the smallest level to 2^24

  explicit byte_levels(levels::exponential<S, levels::binary> const& levels) {
    std::uint32_t const exponent = bits_of(levels.value(levels.max_code())) >> 23;
    first = _mm512_set1_epi8(static_cast<char>(bits_of(levels.extent()) >> 23));
    last = _mm512_set1_epi8(static_cast<char>(exponent));
    sum = _mm512_set1_epi8(static_cast<char>(exponent + levels.max_code()));
    stretch = _mm512_set1_ps(0x1p24F / levels.value(levels.max_code()));
  }

  static __m512i fixed(__m512 t) { return _mm512_maskz_slli_epi32(all16, _mm512_castps_si512(t), 1); }
  static constexpr bool exact = true;

  /// @param above  above(factor): which t * factor are above the word's bits
  template <class Above>
  __m512i code(__m512i upper, Above const& above) const {
    __m512i const exponent = _mm512_maskz_max_epu8(all64, _mm512_maskz_min_epu8(all64, upper, first), last);
    __m512i const result = _mm512_sub_epi8(sum, exponent);
    if (_mm512_cmple_epu8_mask(upper, last) == 0) return result;
    return _mm512_maskz_mov_epi8(above(stretch),
                                 result);  // some may be below the smallest level: to it, or to zero
  }
};

/// Whether codes_of_tiles() exists.
template <class Levels, class Rounding, class Lane>
inline constexpr bool has_codes_of_tiles = [] {
  if constexpr (requires { byte_levels<Levels>::exact; })
    return std::is_same_v<Rounding, rounding::stochastic> && std::is_same_v<Lane, std::int8_t>;
  return false;
}();

/// Codes of tiles by stochastic rounding: those of codes() with the words of @p s.
/// @param gain   one for every 64 values
/// @param ahead  0, or how many values ahead to ask for memory. In between the work: what misses at once has to wait.
/// @pre values are numbers, and levels have codes up to 127
template <class Levels, class Rounding>
[[gnu::noinline]] inline void codes_of_tiles(Levels const& levels, Rounding const& rounding, float const* z,
                                             float const* gain, random::stream const& s, std::uint64_t tile,
                                             int tiles, std::int8_t* out, std::size_t ahead) {
  byte_levels<Levels> const scheme(levels);
  random::detail::tile_source const draw(s);
  __m512i const columns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i const fraction = _mm512_set1_epi32(0xffffff), ones = _mm512_set1_epi32(-1);
  __m512i turn[4];  // of word j of a quarter: the upper 24 bits after turning it by 0, 8, 16 and 24 bits
  for (int j = 0; j < 4; ++j)
    turn[j] =
        _mm512_add_epi8(_mm512_maskz_broadcast_i32x4(
                            all16, _mm_setr_epi8(1, 2, 3, -128, 0, 1, 2, -128, 3, 0, 1, -128, 2, 3, 0, -128)),
                        _mm512_set1_epi32(0x040404 * j));
  for (int k = 0; k < tiles; ++k, z += tile_values, out += tile_values, gain += 4) {
    random::detail::tile_words const drawn = draw(tile + static_cast<std::uint64_t>(k));
    __mmask16 decided = all16;
    for (int w = 0; w < 4; ++w) {
      float const* const in = z + 64 * w;
      if (ahead != 0) {
        prefetch(in + ahead, 64 * sizeof(float));
        prefetch<true>(out + 64 * w + ahead, 64);
      }
      __m512i const words = _mm512_maskz_permutexvar_epi32(all16, columns, drawn.word[w]);
      __m512 const factor = _mm512_set1_ps(gain[w] * scheme.scale);
      __m512i const inverted = _mm512_xor_si512(words, ones);
      __m512i sum[4];
      __mmask16 negative[4];
      for (int j = 0; j < 4; ++j) {
        __m512 const x = _mm512_loadu_ps(in + 16 * j);
        __m512i const t = scheme.fixed(_mm512_maskz_mul_ps(all16, x, factor));
        if constexpr (scheme.exact) {
          sum[j] = _mm512_add_epi32(t, _mm512_maskz_shuffle_epi8(all64, inverted, turn[j]));
        } else {
          sum[j] = _mm512_sub_epi32(t, _mm512_maskz_shuffle_epi8(all64, words, turn[j]));
          decided = _mm512_mask_test_epi32_mask(decided, sum[j], fraction);
        }
        negative[j] = _mm512_movepi32_mask(_mm512_castps_si512(x));
      }
      auto const above = [&](__m512 stretch) {
        __mmask16 is[4];
        for (int j = 0; j < 4; ++j) {
          __m512 const t = _mm512_maskz_mul_ps(all16, _mm512_loadu_ps(in + 16 * j), factor);
          __m512i const part = _mm512_maskz_cvttps_epi32(
              all16, magnitude(_mm512_maskz_mul_ps(all16, t, stretch)));  // beyond its range: 2^31
          __m512i const word = _mm512_maskz_shuffle_epi8(all64, words, turn[j]);
          is[j] = _mm512_cmpgt_epu32_mask(part, word);
          decided = _mm512_mask_cmpneq_epi32_mask(decided, part, word);
        }
        return joined(is[0], is[1], is[2], is[3]);
      };
      __m512i upper = upper_bytes(sum);
      if constexpr (!scheme.exact) upper = _mm512_sub_epi8(upper, ones);
      __m512i const code = scheme.code(upper, above);
      _mm512_storeu_si512(
          out + 64 * w, _mm512_mask_sub_epi8(code, joined(negative[0], negative[1], negative[2], negative[3]),
                                             _mm512_setzero_si512(), code));
    }
    if (__builtin_expect(decided != all16, 0)) {
      std::uint32_t word[tile_values];
      random::detail::spread(drawn, word);
      for (int w = 0; w < 4; ++w)
        codes<64>(levels, rounding, gain[w], z + 64 * w, 64, word + 64 * w, 0U, out + 64 * w);
    }
  }
}

}  // namespace globalq::kernel::detail

#endif
