// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: stochastic codes of whole tiles, for AVX-512.
///
/// The upper 24 bits of a word decide. t becomes an integer with 8 bits that identify the gap above 24 bits of
/// fraction; after subtracting the word's bits, the upper byte is the code minus one. Words therefore need only one
/// byte shuffle between the generator and the subtraction, and clamping and signs are computed on bytes. If the 24 bits
/// are equal (1 value in 2^24), the lower bits would decide: the portable loop then encodes the tile. It also encodes
/// tiles where a line between two levels of a table is within its rounding errors of a word (2^6 in 2^24 values for 7
/// even levels).

#include "../../core/prefetch.hpp"
#include "../loops.hpp"
#include "../words.hpp"
#include "byte_levels_avx512.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if GLOBALQ_AVX512

namespace GLOBALQ_ABI::kernel::detail {

/// Whether codes_of_tiles() exists.
template <class Levels, class Rounding, class Int>
inline constexpr bool has_codes_of_tiles = [] {
  if constexpr (Tabled<Levels> || requires { byte_levels<Levels>::exact; })
    return ComparesWordsAlone<Rounding> && std::is_same_v<Int, std::int8_t>;
  return false;
}();

/// Four vectors of values, their words, and the shuffles of the words.
template <class Value>
struct four_vectors {
  Value const* in[4];
  __m512i words[4];
  __m512i turn[4];
};

/// @param factor   gain times scheme.scale
/// @param decided  a bit is cleared if 24 bits of a word do not decide
template <class Scheme, class Value>
GLOBALQ_ALWAYS_INLINE signed_bytes codes_of_vectors(Scheme const& scheme, four_vectors<Value> const& v,
                                                    __m512 factor, __mmask16& decided) {
  __m512i const ones = _mm512_set1_epi32(-1);
  __m512i x[4], sum[4];
  for (int j = 0; j < 4; ++j) {
    x[j] = _mm512_castps_si512(load_wide(v.in[j]));
    __m512i const t = scheme.fixed(_mm512_maskz_mul_ps(all_lanes, _mm512_castsi512_ps(x[j]), factor));
    if constexpr (Scheme::exact) {
      sum[j] = _mm512_add_epi32(
          t, _mm512_maskz_shuffle_epi8(all64, _mm512_xor_si512(v.words[j], ones), v.turn[j]));
    } else {
      sum[j] = _mm512_sub_epi32(t, _mm512_maskz_shuffle_epi8(all64, v.words[j], v.turn[j]));
      decided = _mm512_mask_test_epi32_mask(decided, sum[j], scheme.decisive());
    }
  }
  auto const above = [&](__m512 stretch) {
    __m512i rest[4];  // negative if t is above the word's bits: both are below 2^31, or t is 2^31
    for (int j = 0; j < 4; ++j) {
      __m512 const t = _mm512_maskz_mul_ps(all_lanes, _mm512_castsi512_ps(x[j]), factor);
      rest[j] = _mm512_sub_epi32(
          _mm512_maskz_shuffle_epi8(all64, v.words[j], v.turn[j]),
          _mm512_maskz_cvttps_epi32(all_lanes, magnitude(_mm512_maskz_mul_ps(all_lanes, t, stretch))));
      decided = _mm512_mask_test_epi32_mask(decided, rest[j], ones);
    }
    return _mm512_movepi8_mask(upper_bytes(rest));
  };
  return scheme.code(upper_bytes(sum), upper_bytes(x), above);
}

/// Writes codes as bytes in two's complement.
struct as_bytes {
  std::int8_t* out;

  static constexpr int parts = 4;
  static constexpr std::uint32_t most = 127;

  /// Encodes a quarter of a tile. @param drawn  in the order group_order::columns
  template <class Scheme, class Value>
  GLOBALQ_ALWAYS_INLINE void part(int w, Scheme const& scheme, Value const* z, float const* gain,
                                  tile_words const& drawn, __m512i const (&turn)[4], std::size_t ahead,
                                  __mmask16& decided) const {
    Value const* const in = z + 64 * w;
    if (ahead != 0) {
      prefetch(in + ahead, 64 * sizeof(Value));
      prefetch<true>(out + 64 * w + ahead, 64);
    }
    __m512i const words = drawn.word[w];
    signed_bytes const b = codes_of_vectors<Scheme, Value>(
        scheme,
        {{in, in + 16, in + 32, in + 48}, {words, words, words, words}, {turn[0], turn[1], turn[2], turn[3]}},
        _mm512_set1_ps(gain[w] * Scheme::scale), decided);
    __m512i const code = _mm512_mask_sub_epi8(b.code, b.negative, _mm512_setzero_si512(), b.code);
    _mm512_storeu_si512(out + 64 * w, in_order(code));
  }

  /// Writes the codes of a tile.
  [[gnu::noinline]] void write(std::int8_t const (&codes)[tile_values]) const {
    for (int i = 0; i < tile_values; ++i) out[i] = codes[i];
  }

  void advance() { out += tile_values; }
};

/// Writes codes as wire::packed<4> does: four bits, the sign above the magnitude, the first of two codes in the lower
/// half of a byte. Levels are at most 7, or 8 if there is no zero; there is no minus zero.
struct as_nibbles {
  std::uint8_t* out;
  int origin = 0;  ///< the smallest magnitude: 1 if there is no zero

  static constexpr int parts = 2;
  static constexpr std::uint32_t most = 8;

  template <class Scheme, class Value>
  GLOBALQ_ALWAYS_INLINE void part(int h, Scheme const& scheme, Value const* z, float const* gain,
                                  tile_words const& drawn, __m512i const (&turn)[4], std::size_t ahead,
                                  __mmask16& decided) const {
    __m512i const minus = _mm512_set1_epi8(8), places = _mm512_set1_epi16(0x1001);
    Value const* const in = z + 128 * h;
    if (ahead != 0) {
      prefetch(in + ahead, 128 * sizeof(Value));
      prefetch<true>(out + 64 * h + ahead / 2, 64);
    }
    __m512i pairs[2];  // of every other vector, because packing interleaves two vectors
    for (int k = 0; k < 2; ++k) {
      Value const* const at = in + 16 * k;
      __m512i const low = drawn.word[2 * h], high = drawn.word[2 * h + 1];
      // all four vectors have the same gain
      signed_bytes const b =
          codes_of_vectors<Scheme, Value>(scheme,
                                          {{at, at + 32, at + 64, at + 96},
                                           {low, low, high, high},
                                           {turn[k], turn[k + 2], turn[k], turn[k + 2]}},
                                          _mm512_set1_ps(gain[2 * h] * Scheme::scale), decided);
      __mmask64 const negative = _mm512_mask_test_epi8_mask(b.negative, b.code, b.code);
      __m512i const code = scheme.stored(b.code);
      pairs[k] = _mm512_maskz_maddubs_epi16(
          ~__mmask32{0}, in_order(_mm512_mask_add_epi8(code, negative, code, minus)), places);
    }
    _mm512_storeu_si512(out + 64 * h, _mm512_maskz_packus_epi16(all64, pairs[0], pairs[1]));
  }

  [[gnu::noinline]] void write(std::int8_t const (&codes)[tile_values]) const {
    auto const field = [&](int i) {
      return (codes[i] < 0 ? 8 - codes[i] : static_cast<int>(codes[i])) - origin;
    };
    for (int i = 0; i < tile_values / 2; ++i)
      out[i] = static_cast<std::uint8_t>(field(2 * i) | (field(2 * i + 1) << 4));
  }

  void advance() { out += tile_values / 2; }
};

/// Encodes a tile by the portable loop. @param gain  one per 64 values
template <class Levels, class Rounding>
[[gnu::noinline]] inline void codes_of_undecided_tile(Levels const& levels, Rounding const& rounding,
                                                      float const (&z)[tile_values], float const* gain,
                                                      random::stream const& s, std::uint64_t tile,
                                                      std::int8_t (&out)[tile_values]) {
  std::uint32_t word[tile_values];
  fill_words<16>(s, tile, 0, word);
  for (int w = 0; w < 4; ++w)
    codes<64>(levels, rounding, gain[w], z + 64 * w, 64, word + 64 * w, 0U, out + 64 * w);
}

/// codes_of_tiles() with a byte scheme.
template <class Scheme, class Levels, class Rounding, class Value, class Out>
[[gnu::noinline]] inline void codes_by_bytes(Scheme const& scheme, Levels const& levels,
                                             Rounding const& rounding, Value const* z, float const* gain,
                                             random::stream const& s, std::uint64_t tile, int tiles, Out out,
                                             std::size_t ahead) {
  tile_source const source(s);
  __m512i turn[4];  // for word j of a quarter: its upper 24 bits after rotation by 0, 8, 16 and 24 bits
  for (int j = 0; j < 4; ++j)
    turn[j] = _mm512_add_epi8(
        _mm512_maskz_broadcast_i32x4(
            all_lanes, _mm_setr_epi8(1, 2, 3, -128, 0, 1, 2, -128, 3, 0, 1, -128, 2, 3, 0, -128)),
        _mm512_set1_epi32(0x040404 * j));
  // draws the words of the next tile between the parts of this one: see add_tiles()
  tile_words now = source.template draw<group_order::columns>(tile), later = now;
  for (int k = 0; k < tiles; ++k, z += tile_values, gain += 4, out.advance(), now = later) {
    std::uint64_t const index = tile + static_cast<std::uint64_t>(k);
    __mmask16 decided = all_lanes;
    auto const part = [&](int p) __attribute__((always_inline)) {
      out.part(p, scheme, z, gain, now, turn, ahead, decided);
    };
    bool const more = k + 1 < tiles;
    auto next = source.template begin<group_order::columns>(index + 1);
    constexpr int half = next.inner / 2;
    part(0);
    if constexpr (Out::parts == 4) {
      if (more) next.template run<0, half>();
      part(1);
      if (more) next.template run<half, next.inner>();
      part(2);
    } else {
      if (more) next.template run<0, next.inner>();
    }
    if (more) later = next.last();
    part(Out::parts - 1);
    if (__builtin_expect(decided != all_lanes, 0)) {
      float wide[tile_values];
      for (int i = 0; i < tile_values; i += 16) _mm512_storeu_ps(wide + i, load_wide(z + i));
      std::int8_t codes[tile_values];
      codes_of_undecided_tile(levels, rounding, wide, gain, s, index, codes);
      out.write(codes);
    }
  }
}

/// Encodes tiles by stochastic rounding; gives the same codes as codes() with the words of @p s.
/// @param z      float, float16 or bfloat16
/// @param gain   one per 64 values; for nibbles, both halves of 128 values must have the same
/// @param out    as_bytes or as_nibbles
/// @param ahead  prefetch distance in values; 0: none. Prefetches are spread over the work, to avoid simultaneous
///               misses.
/// @tparam Most  upper bound of the codes
/// @pre values are not NaN, and codes are at most 127; for nibbles at most 7, or 8 without zero
template <std::uint32_t Most = 127, class Levels, class Rounding, class Value, class Out>
inline void codes_of_tiles(Levels const& levels, Rounding const& rounding, Value const* z, float const* gain,
                           random::stream const& s, std::uint64_t tile, int tiles, Out out,
                           std::size_t ahead) {
  with_byte_levels<smaller(Most, Out::most)>(levels, [&](auto const& scheme) {
    codes_by_bytes(scheme, levels, rounding, z, gain, s, tile, tiles, out, ahead);
  });
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
