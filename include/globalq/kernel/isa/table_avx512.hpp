// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: tables of levels in registers, for AVX-512: counterparts of the loops of table.hpp and loops.hpp.

#include "../detail/table.hpp"
#include "halves_avx512.hpp"

#if GLOBALQ_AVX512

#include <type_traits>

namespace GLOBALQ_ABI::kernel::detail {

/// A table of 2^Bits floats in registers, at least 16.
template <int Bits>
struct lookup {
  static constexpr int registers = Bits <= 4 ? 1 : 1 << (Bits - 4);
  __m512 part[registers];

  static lookup load(float const* values) {
    lookup l;
    for (int k = 0; k < registers; ++k) l.part[k] = _mm512_loadu_ps(values + 16 * k);
    return l;
  }

  /// Looks up sixteen indices; only their lower bits are used.
  GLOBALQ_ALWAYS_INLINE __m512 operator()(__m512i index) const {
    if constexpr (registers == 1) {
      return _mm512_maskz_permutexvar_ps(all_lanes, index, part[0]);
    } else {
      __m512 found[registers / 2];
      for (int k = 0; k < registers / 2; ++k)
        found[k] = _mm512_permutex2var_ps(part[2 * k], index, part[2 * k + 1]);
      for (int width = registers / 4, bit = 32; width > 0; width /= 2, bit *= 2) {
        __mmask16 const upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(bit));
        for (int k = 0; k < width; ++k)
          found[k] = _mm512_mask_blend_ps(upper, found[2 * k], found[2 * k + 1]);
      }
      return found[0];
    }
  }
};

/// 2 * index, plus 1 if the difference is negative.
inline __m512i twice_and_sign(__m512i index, __m512i difference) {
#if defined(__AVX512VBMI2__)
  return _mm512_shldi_epi32(index, difference, 1);
#else
  return _mm512_add_epi32(_mm512_add_epi32(index, index), _mm512_maskz_srli_epi32(all_lanes, difference, 31));
#endif
}

/// Binary search among 2^Steps ascending numbers; the numbers for each step are in registers.
template <int Steps>
struct search_tree {
  static constexpr int bits = Steps < 4 ? 4 : Steps, half = Steps < 5 ? 4 : Steps - 1;

  search_tree<Steps - 1> before;  ///< search among every other number
  lookup<half> last;

  static search_tree of(lookup<bits> const& numbers) {
    __m512i const even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    auto const every_other = [&](__m512i places) {
      lookup<half> l;
      if constexpr (bits == half) {
        l.part[0] = _mm512_maskz_permutexvar_ps(all_lanes, places, numbers.part[0]);
      } else {
        for (int k = 0; k < l.registers; ++k)
          l.part[k] = _mm512_permutex2var_ps(numbers.part[2 * k], places, numbers.part[2 * k + 1]);
      }
      return l;
    };
    return {search_tree<Steps - 1>::of(every_other(even)),
            every_other(_mm512_add_epi32(even, _mm512_set1_epi32(1)))};
  }

  /// Counts for each t how many of the numbers above the lowest are below it; no t is negative.
  GLOBALQ_ALWAYS_INLINE __m512i find(__m512i t) const {
    __m512i const index = before.find(t);
    return twice_and_sign(index, _mm512_sub_epi32(_mm512_castps_si512(last(index)), t));
  }
};

template <>
struct search_tree<1> {
  __m512i last;

  static search_tree of(lookup<4> const& numbers) {
    return {_mm512_maskz_permutexvar_epi32(all_lanes, _mm512_set1_epi32(1),
                                           _mm512_castps_si512(numbers.part[0]))};
  }
  GLOBALQ_ALWAYS_INLINE __m512i find(__m512i t) const {
    return _mm512_maskz_srli_epi32(all_lanes, _mm512_sub_epi32(last, t), 31);
  }
};

/// Finds the gap of t among up to 2^Steps by binary search.
template <int Steps>
struct by_halving {
  static constexpr int bits = Steps < 4 ? 4 : Steps;
  static constexpr float largest = 1;

  search_tree<Steps> tree;

  template <class Levels>
  explicit by_halving(Levels const& levels)
      : tree(search_tree<Steps>::of(lookup<bits>::load(levels.ascending()))) {}

  GLOBALQ_ALWAYS_INLINE __m512i find(__m512i t) const { return tree.find(t); }
  static lookup<bits> arranged(float const* by_gap) { return lookup<bits>::load(by_gap); }
};

/// Finds the gap of t if levels are far enough apart: exponent and leading bits of t leave at most two gaps, and one
/// comparison decides. The index consists of these bits and its result.
struct by_leading_bits {
  static constexpr int bits = 5;
  static constexpr float largest = 0x1.fffffep-1F;  ///< the bits of 1 would wrap to those of the lowest cell

  __m512i lowest, shift, gaps[2];
  lookup<4> pivot;

  template <class Levels>
  explicit by_leading_bits(Levels const& levels)
      : lowest(_mm512_set1_epi32(static_cast<int>(levels.cells().lowest))),
        shift(_mm512_set1_epi32(levels.cells().shift)) {
    for (int k = 0; k < 2; ++k)
      gaps[k] = _mm512_maskz_cvtepu8_epi32(
          all_lanes, _mm_loadu_si128(reinterpret_cast<__m128i const*>(levels.cells().gap + 16 * k)));
    // the level above the lower gap of each cell
    __m512i const even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i const lower = _mm512_permutex2var_epi32(gaps[0], even, gaps[1]);
    pivot.part[0] = _mm512_maskz_permutexvar_ps(all_lanes, _mm512_add_epi32(lower, _mm512_set1_epi32(1)),
                                                _mm512_loadu_ps(levels.ascending()));
  }

  GLOBALQ_ALWAYS_INLINE __m512i find(__m512i t) const {
    __m512i const cell =
        _mm512_maskz_srlv_epi32(all_lanes, _mm512_maskz_max_epi32(all_lanes, t, lowest), shift);
    return twice_and_sign(cell, _mm512_sub_epi32(_mm512_castps_si512(pivot(cell)), t));
  }
  lookup<bits> arranged(float const* by_gap) const {
    lookup<bits> l;
    for (int k = 0; k < 2; ++k)
      l.part[k] = _mm512_maskz_permutexvar_ps(all_lanes, gaps[k], _mm512_loadu_ps(by_gap));
    return l;
  }
};

/// The gap of t, then the line between its ends. A line may be off by slack(), which is added to it. After subtracting
/// a word, the difference must therefore not be below twice the slack.
template <class Search>
struct table_lines {
  Search search;
  lookup<Search::bits> slope, offset;
  __m512i undecided;  ///< at least one of these bits is set in a decisive difference

  template <class Levels>
  explicit table_lines(Levels const& levels)
      : search(levels),
        slope(search.arranged(levels.slopes())),
        offset(search.arranged(levels.offsets())),
        undecided(_mm512_set1_epi32(static_cast<int>(0x1000000U - 2 * levels.slack()))) {}

  /// @pre 0 <= t <= Search::largest
  GLOBALQ_ALWAYS_INLINE __m512i line(__m512 t) const {
    __m512i const gap = search.find(_mm512_castps_si512(t));
    return _mm512_maskz_cvttps_epi32(all_lanes, _mm512_fmadd_ps(t, slope(gap), offset(gap)));
  }
};

/// Calls f(std::type_identity of the search for these levels). @tparam Most  upper bound of the codes
template <std::uint32_t Most = 127, class Levels, class F>
GLOBALQ_ALWAYS_INLINE auto with_search(Levels const& levels, F const& f) {
  if (levels.cells().shift != 0) return f(std::type_identity<by_leading_bits>{});
  if constexpr (Most > 8) {
    if (levels.size() > 64) return f(std::type_identity<by_halving<7>>{});
    if (levels.size() > 32) return f(std::type_identity<by_halving<6>>{});
    if (levels.size() > 16) return f(std::type_identity<by_halving<5>>{});
    if (levels.size() > 8) return f(std::type_identity<by_halving<4>>{});
  }
  return f(std::type_identity<by_halving<3>>{});
}

/// Stores sixteen codes.
inline void store_codes(std::int8_t* out, __mmask16 lanes, __m512i codes) {
  _mm512_mask_cvtepi32_storeu_epi8(out, lanes, codes);
}
inline void store_codes(std::int16_t* out, __mmask16 lanes, __m512i codes) {
  _mm512_mask_cvtepi32_storeu_epi16(out, lanes, codes);
}
inline void store_codes(std::int32_t* out, __mmask16 lanes, __m512i codes) {
  _mm512_mask_storeu_epi32(out, lanes, codes);
}

/// codes_by_table() of a row, except for values that are not decided.
/// @param differences  receives the differences that decides() takes
/// @returns false if some values are not decided
template <class Search, class Levels, class Rounding, class Int>
[[gnu::noinline]] inline bool codes_by_search(Levels const& levels, Rounding const& rounding, float gain,
                                              float const* z, int count, std::uint32_t const* words,
                                              std::uint32_t shared, std::int32_t* differences, Int* out) {
  table_lines<Search> const lines(levels);
  __m512i const sign_bit = _mm512_set1_epi32(static_cast<int>(float_sign)), one = _mm512_set1_epi32(1);
  __m512i const mirror = _mm512_set1_epi32(static_cast<int>(levels.size()) + 1);
  auto const reversed = static_cast<__mmask16>(levels.reversed() ? 0xffff : 0),
             without_zero = static_cast<__mmask16>(levels.zero_free() ? 0xffff : 0);
  __mmask16 close = 0;
  for_each_vector(count, [&](int i, __mmask16 lanes) {
    __m512 const x = _mm512_maskz_loadu_ps(lanes, z + i);
    __m512 const t = _mm512_maskz_range_ps(all_lanes, _mm512_maskz_mul_ps(all_lanes, x, _mm512_set1_ps(gain)),
                                           _mm512_set1_ps(Search::largest), 0x0a);
    __mmask16 const negative = _mm512_test_epi32_mask(_mm512_castps_si512(x), sign_bit);
    __m512i word;
    if constexpr (Rounding::word_per_coordinate) {
      word = _mm512_maskz_loadu_epi32(lanes, words + i);
    } else {
      word =
          _mm512_mask_blend_epi32(negative, _mm512_set1_epi32(static_cast<int>(rounding.compared(shared, 0))),
                                  _mm512_set1_epi32(static_cast<int>(rounding.compared(shared, ~0U))));
    }
    __m512i const difference = _mm512_sub_epi32(lines.line(t), _mm512_maskz_srli_epi32(all_lanes, word, 8));
    close |= _mm512_mask_testn_epi32_mask(lanes, difference, lines.undecided);
    __m512i const index = _mm512_add_epi32(_mm512_maskz_srai_epi32(all_lanes, difference, 24), one);
    __mmask16 const lowest = _mm512_mask_testn_epi32_mask(without_zero, index, index);
    __m512i code =
        _mm512_mask_sub_epi32(index, _mm512_mask_test_epi32_mask(reversed, index, index), mirror, index);
    code = _mm512_mask_mov_epi32(code, lowest, one);
    code =
        _mm512_mask_sub_epi32(code, static_cast<__mmask16>(negative ^ lowest), _mm512_setzero_si512(), code);
    _mm512_mask_storeu_epi32(differences + i, lanes, difference);
    store_codes(out + i, lanes, code);
  });
  return close == 0;
}

/// Loads sixteen codes.
inline __m512i load_codes(std::int8_t const* in, __mmask16 lanes) {
  return _mm512_maskz_cvtepi8_epi32(lanes, _mm_maskz_loadu_epi8(lanes, in));
}
inline __m512i load_codes(std::int16_t const* in, __mmask16 lanes) {
  return _mm512_maskz_cvtepi16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, in));
}
inline __m512i load_codes(std::int32_t const* in, __mmask16 lanes) {
  return _mm512_maskz_loadu_epi32(lanes, in);
}

/// The level of each code with its sign, for magnitudes below 2^Bits.
template <int Bits, class Int>
[[gnu::noinline]] inline void levels_by_magnitude(float const* by_code, Int const* codes, int count,
                                                  float* out) {
  auto const level = lookup<Bits>::load(by_code);
  __m512i const sign = _mm512_set1_epi32(static_cast<int>(float_sign));
  for_each_vector(count, [&](int i, __mmask16 lanes) {
    __m512i const code = load_codes(codes + i, lanes);
    __m512i const magnitude = _mm512_castps_si512(level(_mm512_maskz_abs_epi32(all_lanes, code)));
    // magnitude | (code & sign)
    _mm512_mask_storeu_epi32(out + i, lanes, _mm512_ternarylogic_epi32(magnitude, code, sign, 0xf8));
  });
}

/// level_of() of a row. Codes out of range give an unspecified level.
template <class Levels, class Int>
GLOBALQ_ALWAYS_INLINE void levels_of_codes(Levels const& levels, Int const* codes, int count, float* out) {
  if (levels.size() < 16) return levels_by_magnitude<4>(levels.by_code(), codes, count, out);
  if (levels.size() < 32) return levels_by_magnitude<5>(levels.by_code(), codes, count, out);
  if (levels.size() < 64) return levels_by_magnitude<6>(levels.by_code(), codes, count, out);
  levels_by_magnitude<7>(levels.by_code(), codes, count, out);
}

}  // namespace GLOBALQ_ABI::kernel::detail

#endif
