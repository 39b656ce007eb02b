// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: conversion of levels to bytes, 64 codes per register, for AVX-512.
///
/// A scheme has two functions. fixed() converts a value to an integer whose upper byte identifies the gap between two
/// levels, and whose other 24 bits are the fraction. code() converts the upper bytes, after a word was subtracted, to
/// codes.

#include "table_avx512.hpp"

#if GLOBALQ_AVX512

#include <cstdint>
#include <type_traits>

namespace GLOBALQ_ABI::levels {
template <std::uint32_t S>
class uniform;
struct binary;
template <std::uint32_t S, class Base>
class exponential;
}  // namespace GLOBALQ_ABI::levels

namespace GLOBALQ_ABI::kernel::detail {

/// The bits of |x|, in float lanes.
inline __m512 magnitude(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(float_magnitude))));
}

/// The upper bytes of four vectors of words: byte 4 d + j is that of word d of vector j.
inline __m512i upper_bytes(__m512i const (&s)[4]) {
  // each instruction takes two of four bytes from one vector, shifted, and leaves the others of the second in place
  __m512i const even = _mm512_mask_alignr_epi8(s[2], 0x3333333333333333ULL, s[0], s[0], 2);
  __m512i const odd = _mm512_mask_alignr_epi8(s[3], 0x3333333333333333ULL, s[1], s[1], 2);
  return _mm512_mask_alignr_epi8(odd, 0x5555555555555555ULL, even, even, 1);
}

/// The permutation from upper_bytes() to the bytes of vector 0, then of vector 1, ..., each in the order of its words.
struct alignas(64) order_of_vectors {
  std::uint8_t byte[64] = {};
  constexpr order_of_vectors() {
    for (int i = 0; i < 64; ++i) byte[i] = static_cast<std::uint8_t>(4 * (i % 16) + i / 16);
  }
};
inline constexpr order_of_vectors by_vector{};

/// Reorders bytes from upper_bytes(), vector after vector.
inline __m512i in_order(__m512i bytes) {
#if defined(__AVX512VBMI__)
  return _mm512_maskz_permutexvar_epi8(all64, _mm512_load_si512(by_vector.byte), bytes);
#else
  __m512i const inside = _mm512_maskz_shuffle_epi8(
      all64, bytes,
      _mm512_maskz_broadcast_i32x4(all_lanes,
                                   _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  return _mm512_maskz_permutexvar_epi32(
      all_lanes, _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), inside);
#endif
}

/// The codes of 64 values, as magnitudes and signs, in the order of upper_bytes().
struct signed_bytes {
  __m512i code;
  __mmask64 negative;
};

/// The conversion of a level scheme to bytes.
template <class Levels>
struct byte_levels;

/// t * 2^24 as an integer, because the levels are whole numbers.
template <std::uint32_t S>
struct byte_levels<levels::uniform<S>> {
  static constexpr float scale = 0x1p24F;
  __m512 largest;

  explicit byte_levels(levels::uniform<S> const& levels)
      : largest(_mm512_set1_ps(levels.extent() * 0x1p24F)) {}

  /// t without its sign, at most the largest level, as an integer.
  __m512i fixed(__m512 t) const {
    return _mm512_maskz_cvttps_epi32(all_lanes, _mm512_maskz_range_ps(all_lanes, t, largest, 0x0a));
  }
  static constexpr bool exact = false;  ///< below 1/2, t has more than 24 bits of fraction
  /// A word decides if any of these bits is set after its subtraction.
  static __m512i decisive() { return _mm512_set1_epi32(0xffffff); }

  template <class Above>
  signed_bytes code(__m512i upper, __m512i sign, Above const& /*above*/) const {
    return {_mm512_sub_epi8(upper, _mm512_set1_epi8(-1)), _mm512_movepi8_mask(sign)};
  }
  static __m512i stored(__m512i code) { return code; }
};

/// The bits of t without its sign: the exponent identifies the gap, and the mantissa is the fraction.
template <std::uint32_t S>
struct byte_levels<levels::exponential<S, levels::binary>> {
  static constexpr float scale = 1;
  __m512i first, last,
      sum;  ///< exponents of the largest and of the smallest level; exponent plus code, the same for all
  __m512 stretch;  ///< factor from the smallest level to 2^24

  explicit byte_levels(levels::exponential<S, levels::binary> const& levels) {
    std::uint32_t const exponent = bits_of(levels.value(levels.max_code())) >> 23;
    first = _mm512_set1_epi8(static_cast<char>(bits_of(levels.extent()) >> 23));
    last = _mm512_set1_epi8(static_cast<char>(exponent));
    sum = _mm512_set1_epi8(static_cast<char>(exponent + levels.max_code()));
    stretch = _mm512_set1_ps(0x1p24F / levels.value(levels.max_code()));
  }

  static __m512i fixed(__m512 t) { return _mm512_maskz_slli_epi32(all_lanes, _mm512_castps_si512(t), 1); }
  static constexpr bool exact = true;

  /// @param above  above(factor) returns which t * factor are above the bits of their words
  template <class Above>
  signed_bytes code(__m512i upper, __m512i sign, Above const& above) const {
    __m512i const exponent = _mm512_maskz_max_epu8(all64, _mm512_maskz_min_epu8(all64, upper, first), last);
    __m512i const result = _mm512_sub_epi8(sum, exponent);
    __mmask64 const negative = _mm512_movepi8_mask(sign);
    if (_mm512_cmple_epu8_mask(upper, last) == 0) return {result, negative};
    // some values may be below the smallest level, and round to it or to zero
    return {_mm512_maskz_mov_epi8(above(stretch), result), negative};
  }
  static __m512i stored(__m512i code) { return code; }
};

/// A line between two levels of a table, minus a word: its upper byte is the index of a level minus one.
/// @tparam Plain  whether the index is the code: there is a zero, and levels are not reversed
template <class Search, bool Plain = false>
struct byte_lines : table_lines<Search> {
  static constexpr float scale = 1;
  static constexpr bool exact = false;

  __mmask64 reversed, without_zero;  ///< all bits, or none
  __m512i mirror, least;

  template <class Levels>
  explicit byte_lines(Levels const& levels)
      : table_lines<Search>(levels),
        reversed(levels.reversed() ? all64 : 0),
        without_zero(levels.zero_free() ? all64 : 0),
        mirror(_mm512_set1_epi8(static_cast<char>(levels.size() + 1))),
        least(_mm512_set1_epi8(levels.zero_free() ? 1 : 0)) {}

  GLOBALQ_ALWAYS_INLINE __m512i fixed(__m512 x) const {
    return this->line(_mm512_maskz_range_ps(all_lanes, x, _mm512_set1_ps(Search::largest), 0x0a));
  }
  __m512i decisive() const { return this->undecided; }

  /// If reversed, code 1 is the largest level. Without zero, the level below the lowest is minus the lowest.
  template <class Above>
  signed_bytes code(__m512i upper, __m512i sign, Above const& /*above*/) const {
    __m512i const index = _mm512_sub_epi8(upper, _mm512_set1_epi8(-1));
    if constexpr (Plain) return {index, _mm512_movepi8_mask(sign)};
    __m512i const turned =
        _mm512_mask_sub_epi8(index, _mm512_mask_test_epi8_mask(reversed, index, index), mirror, index);
    return {_mm512_maskz_max_epu8(all64, turned, least),
            _mm512_movepi8_mask(sign) ^ _mm512_mask_testn_epi8_mask(without_zero, index, index)};
  }
  /// Codes as stored by the packed wire.
  __m512i stored(__m512i code) const {
    if constexpr (Plain) return code;
    return _mm512_sub_epi8(code, least);
  }
};

/// Calls f with the byte scheme of these levels. @tparam Most  upper bound of the codes
template <std::uint32_t Most, class Levels, class F>
GLOBALQ_ALWAYS_INLINE void with_byte_levels(Levels const& levels, F const& f) {
  if constexpr (!Tabled<Levels>) {
    f(byte_levels<Levels>(levels));
  } else {
    if (levels.cells().shift != 0 && !levels.reversed() && !levels.zero_free())
      return f(byte_lines<by_leading_bits, true>(levels));
    with_search<Most>(levels,
                      [&]<class Search>(std::type_identity<Search>) { f(byte_lines<Search>(levels)); });
  }
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
