// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the randomised Hadamard transform of a block: signs, then sums and differences.

#include "../../random/stream.hpp"

#include <cstdint>

namespace globalq::compressor::detail {

/// One stage of the transform of @p count values: sums and differences of values @p reach apart.
GLOBALQ_LOOP void butterflies(float* x, std::uint64_t count, std::uint64_t reach) {
  for (std::uint64_t at = 0; at < count; at += 2 * reach) {
    float* __restrict low = x + at;
    float* __restrict high = x + at + reach;
    for (std::uint64_t i = 0; i < reach; ++i) {
      float const a = low[i], b = high[i];
      low[i] = a + b;
      high[i] = a - b;
    }
  }
}

/// @brief x = H x, without a factor: H H = count.
/// @param count  a power of two
/// @determinism  sums of two in a fixed order, no products: the same bits everywhere
inline void hadamard(float* x, std::uint64_t count) {
  for (std::uint64_t reach = 1; reach < count; reach *= 2) butterflies(x, count, reach);
}

/// Turns the signs of values by random bits: value i of the vector by bit i % 128 of group i / 128.
inline void turn_signs(random::stream const& bits, std::uint64_t first, std::uint64_t count, float* x) {
  random::words4 w{};
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t const at = first + i;
    if (i == 0 || at % 128 == 0) w = bits.group(at / 128);
    std::uint32_t const bit = w.word[at % 128 / 32] >> (at % 32) & 1U;
    x[i] = float_of(bits_of(x[i]) ^ bit << 31);
  }
}

}  // namespace globalq::compressor::detail
