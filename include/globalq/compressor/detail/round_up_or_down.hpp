// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: values to whole numbers, one of the two neighbours at random and without bias.

#include "../../random/stream.hpp"

#include <cmath>
#include <cstdint>

namespace globalq::compressor::detail {

/// out[i] = floor(t) or one more, t = x[i] gain + offset, cut off at least and most; up with the probability of t's fraction.
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

/// The same for any number of values, the first of which has place @p place among those that random words are drawn for.
template <class Code>
void round_all(random::stream const& bits, std::uint64_t place, float const* x, std::uint64_t count,
               double gain, double offset, double least, double most, Code* out) {
  std::uint32_t words[random::tile_values];
  for (std::uint64_t i = 0; i < count;) {
    std::uint64_t const in_tile = (place + i) % random::tile_values;
    std::uint64_t const here =
        random::tile_values - in_tile < count - i ? random::tile_values - in_tile : count - i;
    random::fill<16>(bits, (place + i) / random::tile_values, 0, words);
    round_values(x + i, static_cast<int>(here), gain, offset, least, most, words + in_tile, out + i);
    i += here;
  }
}

}  // namespace globalq::compressor::detail
