// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loops over the values of a row: encode, decode, add, and check the range of codes.
///
/// Each loop is written once for all policies, without branches. On a host each is a separate function, so that its
/// vectorization does not depend on the surrounding code (some inlined loops were 20 times slower).

#include "../core/concepts.hpp"
#include "detail/table.hpp"
#include "load_store.hpp"
#if GLOBALQ_AVX512
#include "isa/table_avx512.hpp"
#endif
#if GLOBALQ_AVX512 || GLOBALQ_AVX2
#include "isa/parts_avx2.hpp"
#endif

namespace GLOBALQ_ABI::kernel {

/// Loops copy a small policy: byte stores may alias anything, so its members would be read again for each value.
template <class Policy>
using local_copy = std::conditional_t<sizeof(Policy) <= 32, Policy const, Policy const&>;

/// The code of a value.
/// @param m  |z| * gain, at most extent()
template <class Levels, class Rounding>
GLOBALQ_FUNCTION std::int32_t code_of(Levels const& levels, Rounding const& rounding, float m, bool negative,
                                      std::uint32_t word) {
  neighbors const c = levels.locate(m);
  std::int32_t const code = rounding.up(c.threshold, word, negative ? ~0U : 0U) ? c.upper : c.lower;
  return negative ? -code : code;
}

namespace detail {

/// codes() for a table of levels: interpolates by lines first, then applies the definition to values that lines leave
/// open.
template <int N, class Levels, class Rounding, class Int>
GLOBALQ_FUNCTION void codes_by_table(Levels const& levels, Rounding const& rounding, float gain,
                                     float const* z, int count, std::uint32_t const* words,
                                     std::uint32_t shared, Int* out) {
  std::int32_t differences[N];
  bool decided;
#if GLOBALQ_AVX512
  if constexpr (!Rounding::word_per_coordinate || ComparesWordsAlone<Rounding>)
    decided = with_search(levels, [&]<class Search>(std::type_identity<Search>) {
      return codes_by_search<Search>(levels, rounding, gain, z, count, words, shared, differences, out);
    });
  else
#endif
    decided = decided_codes<N>(levels, rounding, gain, z, count, words, shared, differences, out);
  if (decided) return;
  std::uint32_t const top = bits_of(levels.extent());
  for (int i = 0; i < count; ++i) {
    if (decides(differences[i], levels.slack())) continue;
    std::uint32_t const b = bits_of(z[i]), m = bits_of(multiply(float_of(b & float_magnitude), gain));
    std::uint32_t word = shared;
    if constexpr (Rounding::word_per_coordinate) word = words[i];
    out[i] = static_cast<Int>(
        code_of(levels, rounding, float_of(m < top ? m : top), static_cast<std::int32_t>(b) < 0, word));
  }
}

}  // namespace detail

/// Codes of count values.
///
/// Levels receive only t = |z| * gain, clamped to [0, extent] as an integer, so that no product is fused into a sum.
/// @param words   one word per value, or unused
/// @param shared  the word of the bucket, or unused
template <int N, class Levels, class Rounding, class Int>
GLOBALQ_LOOP void codes(Levels const& levels, Rounding const& rounding, float gain, float const* z, int count,
                        std::uint32_t const* words, std::uint32_t shared, Int* out) {
  if constexpr (Tabled<Levels> && ComparesWords<Rounding>)
    if (levels.has_lines())
      return detail::codes_by_table<N>(levels, rounding, gain, z, count, words, shared, out);
  std::uint32_t const top = bits_of(levels.extent());
  local_copy<Levels> scheme = levels;
  Rounding const decide = rounding;
  globalq::detail::with_count<N>(count, [=, &scheme](auto n) {
    float const* __restrict in = z;
    [[maybe_unused]] std::uint32_t const* __restrict random = words;
    Int* __restrict codes = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      std::uint32_t const b = bits_of(in[i]);
      bool const negative = static_cast<std::int32_t>(b) < 0;
      std::uint32_t const m = bits_of(multiply(float_of(b & float_magnitude), gain));
      std::uint32_t word = shared;
      if constexpr (Rounding::word_per_coordinate) word = random[i];
      codes[i] = static_cast<Int>(code_of(scheme, decide, float_of(m < top ? m : top), negative, word));
    }
  });
}

/// The words that decide in a tile: compared() of its rounding. With them codes() rounds as rounding::stochastic.
template <int N, class Rounding>
GLOBALQ_LOOP void compared_words(Rounding const& rounding, float const* z, int count,
                                 std::uint32_t const* words, std::uint32_t* out) {
#if GLOBALQ_AVX512 || GLOBALQ_AVX2
  if constexpr (std::is_same_v<Rounding, rounding::detail::stratified>) {
    int const vectors = count / 8 * 8;
    detail::compared_in_part(rounding, z, vectors, words, out);
    for (int i = vectors; i < count; ++i)
      out[i] = rounding.compared(words[i],
                                 static_cast<std::uint32_t>(static_cast<std::int32_t>(bits_of(z[i])) >> 31));
    return;
  }
#endif
  Rounding const in_tile = rounding;
  globalq::detail::with_count<N>(count, [=](auto n) {
    float const* __restrict in = z;
    std::uint32_t const* __restrict drawn = words;
    std::uint32_t* __restrict result = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i)
      result[i] = in_tile.compared(
          drawn[i], static_cast<std::uint32_t>(static_cast<std::int32_t>(bits_of(in[i])) >> 31));
  });
}

/// Whether all codes are at most @p limit in magnitude and, if @p zero_free, not zero.
template <int N = 256, class Int>
GLOBALQ_LOOP bool in_range(Int const* codes, int count, std::uint32_t limit, bool zero_free) {
  Int low = 0, high = 0;  // not widened, so that a vector register holds the most codes
  bool zero = false;
  globalq::detail::with_count<N>(count, [&](auto n) {
    Int const* __restrict in = codes;
    int const end = n;
    Int least = 0, most = 0;
    for (int i = 0; i < end; ++i) {
      least = in[i] < least ? in[i] : least;
      most = most < in[i] ? in[i] : most;
    }
    low = least;
    high = most;
    if (!zero_free) return;
    Int found = 0;
    for (int i = 0; i < end; ++i) found = static_cast<Int>(found | (in[i] == 0 ? 1 : 0));
    zero = found != 0;
  });
  std::int64_t const largest = limit;
  return high <= largest && low >= -largest && !zero;
}

/// out = z * gain; the product cannot be fused into a later sum.
template <int N>
GLOBALQ_LOOP void scaled(float const* z, int count, float gain, float* out) {
  globalq::detail::with_count<N>(count, [=](auto n) {
    float const* __restrict in = z;
    float* __restrict result = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) result[i] = with_sign(multiply(in[i], gain), bits_of(in[i]));
  });
}

/// For learn::histogram: computes for each value its bin and its fraction within the bin, in one number.
GLOBALQ_LOOP void places(float const* z, int count, float gain, float floor, std::uint32_t base,
                         std::uint32_t* out) {
  float const* __restrict in = z;
  std::uint32_t* __restrict place = out;
  GLOBALQ_INDEPENDENT
  for (int i = 0; i < count; ++i) {
    float const r = multiply(float_of(bits_of(in[i]) & float_magnitude), gain);
    std::uint32_t const y = bits_of(with_sign(r, 0) + floor);
    place[i] = (y < 0x3f7fffffU ? y : 0x3f7fffffU) - base;
  }
}

/// The level of a code with its sign, on the scale of extent().
template <class Levels, class Code>
GLOBALQ_FUNCTION float level_of(Levels const& levels, Code code) {
  if constexpr (HasSignedValues<Levels, Code>) {
    return levels.signed_value(code);
  } else {
    std::int32_t const c = code;
    return with_sign(levels.value(static_cast<std::uint32_t>(c < 0 ? -c : c)), static_cast<std::uint32_t>(c));
  }
}

/// (level + shift) * factor; the product cannot be fused into a later sum.
template <class Levels, class Code>
GLOBALQ_FUNCTION float value_of(Levels const& levels, Code code, float shift, float factor) {
  float const v = level_of(levels, code) + shift;
  return with_sign(multiply(v, factor), bits_of(v));
}

/// Stands in for levels in a loop whose levels were looked up before: its codes are the levels themselves.
template <class Levels>
struct levels_found {
  Levels const* scheme;
  GLOBALQ_FUNCTION float value(std::uint32_t code) const { return scheme->value(code); }
  GLOBALQ_FUNCTION static float signed_value(float level) { return level; }
};

/// The values of count codes, written to or added to @p out.
template <int N, bool Add, class Levels, class Int>
GLOBALQ_LOOP void values(Levels const& levels, Int const* codes, int count, float shift, float factor,
                         float* out) {
#if GLOBALQ_AVX512
  if constexpr (Tabled<Levels>) {
    alignas(64) float level[N];  // aligned, so that no vector crosses a cache line
    detail::levels_of_codes(levels, codes, count, level);
    return values<N, Add>(levels_found<Levels>{&levels}, level, count, shift, factor, out);
  }
#endif
  local_copy<Levels> scheme = levels;
  globalq::detail::with_count<N>(count, [=, &scheme](auto n) {
    Int const* __restrict in = codes;
    float* __restrict result = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      float const v = value_of(scheme, in[i], shift, factor);
      result[i] = Add ? result[i] + v : v;
    }
  });
}

/// Scales the values of count codes to a float32 vector, and writes them or adds them to it.
/// @param times,post  the factors of a store_scale
/// @param limit  the largest possible code: levels are monotonic, so levels 1 and limit bound the values
/// @returns the bit pattern of the largest magnitude, or 0 if no value can be out of range
template <int N, bool Add, class Levels, class Int>
GLOBALQ_LOOP std::uint32_t decode(Levels const& levels, Int const* codes, int count, float shift,
                                  float factor, float times, float post, std::uint32_t limit, float* out) {
#if GLOBALQ_AVX512
  if constexpr (Tabled<Levels>) {
    alignas(64) float level[N];  // aligned, so that no vector crosses a cache line
    detail::levels_of_codes(levels, codes, count, level);
    return decode<N, Add>(levels_found<Levels>{&levels}, level, count, shift, factor, times, post, limit,
                          out);
  }
#endif
  local_copy<Levels> scheme = levels;
  std::uint32_t largest = 0;
  globalq::detail::with_count<N>(count, [=, &scheme, &largest](auto n) {
    Int const* __restrict in = codes;
    float* __restrict result = out;
    int const end = n;
    float const first = scheme.value(1), last = scheme.value(limit);
    float const most = first < last ? last : first, least = first < last ? first : last;
    store_scale scale;
    scale.factor = times;
    scale.post = post;
    float const both = factor * times;
    // if one of the two products is exact, one multiplication by `both` gives the same result
    bool const exact = factor == 1 || (bits_of(times) & 0x7fffffU) == 0;
    bool const usual = factor == 1 || (least * factor >= 0x1p-120F && least * both >= 0x1p-120F &&
                                       most * factor < 0x1p120F && factor >= 0x1p-120F);
    // values are in range; adding one to a finite float32 cannot overflow if it is below half a unit in its last place
    bool const fits = most * both < (Add ? 0x1p102F : 0x1p127F);
    if (shift == 0 && post == 1 && exact && usual && fits) {
      GLOBALQ_INDEPENDENT
      for (int i = 0; i < end; ++i) {
        float const level = level_of(scheme, in[i]);
        if constexpr (Add)
          result[i] += with_sign(multiply(level, both), bits_of(level));
        else
          result[i] = multiply(level, both);
      }
      return;
    }
    std::uint32_t top = 0;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      float const decoded = scale(value_of(scheme, in[i], shift, factor));
      float const v = Add ? result[i] + decoded : decoded;
      std::uint32_t const magnitude = bits_of(v) & float_magnitude;
      top = top < magnitude ? magnitude : top;
      result[i] = v;
    }
    largest = top;
  });
  return largest;
}

/// a + b by a reduce operator on codes.
template <class Op, int N, class Int>
GLOBALQ_LOOP void add(Int const* a, Int const* b, int count, std::uint32_t const* words, Int* out) {
  globalq::detail::with_count<N>(count, [=](auto n) {
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) out[i] = static_cast<Int>(Op::add(a[i], b[i], Op::draws ? words[i] : 0U));
  });
}

}  // namespace GLOBALQ_ABI::kernel
