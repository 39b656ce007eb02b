// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: rounds values to one of the two neighboring integers, at random and without bias.

#include "../../kernel/words.hpp"

#include <cmath>
#include <cstdint>

namespace GLOBALQ_ABI::baseline::detail {

/// out[i] = floor(t) or one more, t = x[i] gain + offset, clipped to [least, most]; up with the probability of t's
/// fraction.
/// @param words  a random word for each value
template <class Code>
GLOBALQ_LOOP void round_values(float const* x, int count, double gain, double offset, double least,
                               double most, std::uint32_t const* words, Code* __restrict out) {
  for (int i = 0; i < count; ++i) {
    double t = static_cast<double>(x[i]) * gain + offset;
    t = t < least ? least : t;
    t = t > most ? most : t;
    double const low = std::floor(t);
    out[i] = static_cast<Code>(static_cast<std::int32_t>(low) +
                               ((t - low) * 0x1p32 > static_cast<double>(words[i]) ? 1 : 0));
  }
}

/// @brief out[i] = the neighbor of t = x[i] gain + offset below or above, among integers that need not be consecutive;
/// t is clipped to [0, most]. Rounding is unbiased.
/// @param cells  for 0 .. most: by integer part of t, the neighbor below, plus 2^16 times the distance of the neighbors
GLOBALQ_LOOP void round_to_cells(float const* x, int count, double gain, double offset, double most,
                                 std::uint32_t const* cells, std::uint32_t const* words,
                                 std::uint16_t* __restrict out) {
  for (int i = 0; i < count; ++i) {
    double t = static_cast<double>(x[i]) * gain + offset;
    t = t < 0 ? 0 : t;
    t = t > most ? most : t;
    std::int32_t const cell = static_cast<std::int32_t>(cells[static_cast<std::int32_t>(t)]);
    std::int32_t const low = cell & 0xffff, width = cell >> 16;
    bool const up = (t - low) * 0x1p32 > static_cast<double>(width) * static_cast<double>(words[i]);
    out[i] = static_cast<std::uint16_t>(low + (up ? width : 0));
  }
}

/// @brief Calls f(first, count, words) for pieces of @p count values, with a random word for each value.
/// @param place  of the first value among all values that draw random words
template <class F>
void with_words(random::stream const& bits, std::uint64_t place, std::uint64_t count, F const& f) {
  std::uint32_t words[random::tile_values];
  for (std::uint64_t i = 0; i < count;) {
    std::uint64_t const in_tile = (place + i) % random::tile_values;
    std::uint64_t const here =
        random::tile_values - in_tile < count - i ? random::tile_values - in_tile : count - i;
    kernel::fill_words<16>(bits, (place + i) / random::tile_values, 0, words);
    f(i, static_cast<int>(here), words + in_tile);
    i += here;
  }
}

/// round_values() for any number of values; the first has place @p place among all values that draw random words.
template <class Code>
void round_all(random::stream const& bits, std::uint64_t place, float const* x, std::uint64_t count,
               double gain, double offset, double least, double most, Code* out) {
  with_words(bits, place, count, [&](std::uint64_t i, int here, std::uint32_t const* words) {
    round_values(x + i, here, gain, offset, least, most, words, out + i);
  });
}

}  // namespace GLOBALQ_ABI::baseline::detail
