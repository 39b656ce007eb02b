// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: stochastic rounding of values to 16 bits, with a word for each.

#include "../core/dtype.hpp"
#include "words.hpp"

namespace GLOBALQ_ABI::kernel {

/// Half::round() of values times a power of two, with the words of consecutive tiles.
template <class Half>
GLOBALQ_LOOP void round_halves(float const* in, float factor, int count, random::stream const& s,
                               std::uint64_t tile, std::uint16_t* out) {
  for (int at = 0; at < count; at += tile_values, ++tile) {
    std::uint32_t words[tile_values];
    fill_words<16>(s, tile, 0, words);
    globalq::detail::with_count<tile_values>(smaller(tile_values, count - at), [=, &words](auto n) {
      float const* __restrict source = in + at;
      std::uint32_t const* __restrict word = words;
      std::uint16_t* __restrict target = out + at;
      int const end = n;
      GLOBALQ_INDEPENDENT
      for (int i = 0; i < end; ++i) target[i] = Half::round(multiply(source[i], factor), word[i]);
    });
  }
}

}  // namespace GLOBALQ_ABI::kernel
