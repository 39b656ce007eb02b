// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: encodes a row by a table of levels, in loops that compilers vectorize.
///
/// locate() of such levels searches and computes a fraction in double, one value at a time. Here all values of a row
/// are searched together, by counting (few levels) or binary search, and lines in float32 give the decision (see
/// levels/table.hpp). If the upper 24 bits of a word are within slack() of the line, which is rare, locate() decides.

#include "../../core/concepts.hpp"
#include "../../core/dtype.hpp"

namespace GLOBALQ_ABI::kernel::detail {

/// Computes |z| * gain, at most @p top.
template <int N>
GLOBALQ_LOOP void magnitudes(float const* z, int count, float gain, float top, float* out) {
  std::uint32_t const most = bits_of(top);
  globalq::detail::with_count<N>(count, [=](auto n) {
    float const* __restrict in = z;
    float* __restrict t = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      std::uint32_t const m = bits_of(multiply(float_of(bits_of(in[i]) & float_magnitude), gain));
      t[i] = float_of(m < most ? m : most);
    }
  });
}

/// Counts for each value how many of the first 8 or 16 levels above the lowest one are at or below it.
template <int N, int Levels>
GLOBALQ_LOOP void count_levels(float const* ascending, float const* values, int count, std::int32_t* out) {
  static_assert(Levels == 8 || Levels == 16);
  globalq::detail::with_count<N>(count, [=](auto n) {
    float l[Levels];
    for (int j = 0; j < Levels; ++j) l[j] = ascending[j + 1];
    float const* __restrict t = values;
    std::int32_t* __restrict index = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end;
         ++i) {  // unrolled by hand: an inner loop would prevent the vectorization of this one
      float const v = t[i];
      std::int32_t k = (l[0] <= v) + (l[1] <= v) + (l[2] <= v) + (l[3] <= v) + (l[4] <= v) + (l[5] <= v) +
                       (l[6] <= v) + (l[7] <= v);
      if constexpr (Levels == 16)
        k += (l[8] <= v) + (l[9] <= v) + (l[10] <= v) + (l[11] <= v) + (l[12] <= v) + (l[13] <= v) +
             (l[14] <= v) + (l[15] <= v);
      index[i] = k;
    }
  });
}

/// The same for up to 127 levels, by binary search.
template <int N>
GLOBALQ_LOOP void search_levels(float const* ascending, float const* values, int count, std::int32_t* out) {
  globalq::detail::with_count<N>(count, [=](auto n) {
    float const* __restrict t = values, * __restrict level = ascending;
    std::int32_t* __restrict index = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      float const v = t[i];
      std::int32_t k = level[64] <= v ? 64 : 0;
      k += level[k + 32] <= v ? 32 : 0;
      k += level[k + 16] <= v ? 16 : 0;
      k += level[k + 8] <= v ? 8 : 0;
      k += level[k + 4] <= v ? 4 : 0;
      k += level[k + 2] <= v ? 2 : 0;
      k += level[k + 1] <= v ? 1 : 0;
      index[i] = k;
    }
  });
}

/// Whether the upper 24 bits of a word decide. @param difference  line (index and fraction, plus slack) minus the word
GLOBALQ_FUNCTION bool decides(std::int32_t difference, std::uint32_t slack) {
  return (static_cast<std::uint32_t>(difference) & (0x1000000U - 2 * slack)) != 0;
}

/// Encodes values, given their indices. Replaces the indices by the differences that decides() takes.
/// @returns false if some values are not decided
template <int N, class Levels, class Rounding, class Int>
GLOBALQ_LOOP bool codes_on_lines(Levels const& levels, Rounding const& rounding, float const* z,
                                 float const* values, int count, std::uint32_t const* words,
                                 std::uint32_t shared, std::int32_t* indices, Int* out) {
  std::uint32_t close = 0;
  globalq::detail::with_count<N>(count, [=, &levels, &rounding, &close](auto n) {
    Rounding const decide = rounding;
    float const *__restrict in = z, *__restrict t = values, *__restrict slope = levels.slopes(),
                            *__restrict offset = levels.offsets();
    [[maybe_unused]] std::uint32_t const* __restrict random = words;
    std::int32_t* __restrict index = indices;
    Int* __restrict codes = out;
    std::uint32_t const slack = levels.slack();
    std::int32_t const lowest = levels.code_of(0), flip = levels.reversed() ? -1 : 0,
                       more = levels.code_of(1) - (1 ^ flip);
    std::uint32_t undecided = 0;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      std::int32_t const sign = static_cast<std::int32_t>(bits_of(in[i])) >> 31;
      std::uint32_t word = shared;
      if constexpr (Rounding::word_per_coordinate) word = random[i];
      word = decide.compared(word, static_cast<std::uint32_t>(sign));
      std::int32_t const line = static_cast<std::int32_t>(slope[index[i]] * t[i] + offset[index[i]]);
      std::int32_t const difference = line - static_cast<std::int32_t>(word >> 8);
      undecided |= decides(difference, slack) ? 0U : 1U;
      std::int32_t const k = (difference >> 24) + 1;
      std::int32_t const code = k == 0 ? lowest : (k ^ flip) + more;
      index[i] = difference;
      codes[i] = static_cast<Int>((code ^ sign) - sign);
    }
    close = undecided;
  });
  return close == 0;
}

/// codes() of a row, except for values that are not decided.
/// @returns false if there are such values
/// @pre     levels.has_lines(); otherwise a line could exceed the range of an integer
template <int N, class Levels, class Rounding, class Int>
GLOBALQ_FUNCTION bool decided_codes(Levels const& levels, Rounding const& rounding, float gain,
                                    float const* z, int count, std::uint32_t const* words,
                                    std::uint32_t shared, std::int32_t* differences, Int* out) {
  float t[N];
  magnitudes<N>(z, count, gain, levels.extent(), t);
  if (levels.size() <= 8)
    count_levels<N, 8>(levels.ascending(), t, count, differences);
  else if (levels.size() <= 16)
    count_levels<N, 16>(levels.ascending(), t, count, differences);
  else
    search_levels<N>(levels.ascending(), t, count, differences);
  return codes_on_lines<N>(levels, rounding, z, t, count, words, shared, differences, out);
}

}  // namespace GLOBALQ_ABI::kernel::detail
