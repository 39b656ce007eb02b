// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief random: Philox4x32, a counter-based generator: 128 bits in, 128 bits out, no state.

#include "../core/arithmetic.hpp"

namespace GLOBALQ_ABI::random {

/// Four 32-bit words.
struct words4 {
  std::uint32_t word[4];
};

/// One block of Philox4x32.
///
/// A pure function: the same bits on every backend, in any order, on any number of threads.
/// @tparam Rounds   10 is the published default; 7 is the fewest that pass the published batteries
/// @param counter   number of the block
/// @param key0,key1 the seed
/// @complexity      2 widening multiplications per round
/// @source          Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011)
template <int Rounds = 10>
GLOBALQ_FUNCTION words4 philox(words4 counter, std::uint32_t key0, std::uint32_t key1) {
  static_assert(Rounds >= 1, "globalq: Philox needs at least one round; use 7 or 10, which are tested");
  std::uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < Rounds; ++round) {
    std::uint64_t const p = std::uint64_t{0xD2511F53U} * c0;
    std::uint64_t const q = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(q >> 32) ^ c1 ^ key0;
    c2 = static_cast<std::uint32_t>(p >> 32) ^ c3 ^ key1;
    c1 = static_cast<std::uint32_t>(q);
    c3 = static_cast<std::uint32_t>(p);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace GLOBALQ_ABI::random
