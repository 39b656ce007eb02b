// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief How many rounds of Philox the library needs: statistics of the blocks that it really draws.
///
/// The counters of a run are as regular as can be: groups, steps and workers count up from zero and the seed is small.
/// Every statistic is a z-score; with some 26,000 of them, |z| > 7 happens by chance once in 10^7 runs. The same
/// battery must find fault with six rounds, or it would say nothing about seven.

#include "globalq/random/stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace {

namespace gq = globalq;
using gq::random::philox;
using gq::random::purpose;
using gq::random::stream;
using gq::random::words4;

constexpr double threshold = 7;

template <int Rounds>
words4 block(stream const& s, std::uint64_t group) {
  return philox<Rounds>(s.counter(group), static_cast<std::uint32_t>(s.seed),
                        static_cast<std::uint32_t>(s.seed >> 32));
}

/// |z| of a count that is binomial(n, 1/2).
double z_of(std::uint64_t count, std::uint64_t n) {
  return std::fabs(2 * static_cast<double>(count) - static_cast<double>(n)) /
         std::sqrt(static_cast<double>(n));
}

/// |z| of a chi-square statistic: mean bins - 1, variance 2 (bins - 1).
double z_of(std::vector<std::uint32_t> const& counts, double n) {
  double const expected = n / static_cast<double>(counts.size());
  double chi = 0;
  for (std::uint32_t c : counts) chi += (c - expected) * (c - expected) / expected;
  double const freedom = static_cast<double>(counts.size()) - 1;
  return std::fabs(chi - freedom) / std::sqrt(2 * freedom);
}

std::uint32_t byte_of(words4 const& w, int i) { return (w.word[i / 4] >> (8 * (i % 4))) & 0xffU; }

/// The streams next to one: what changes from call to call, worker to worker, use to use, block to block.
using neighbor = std::function<words4(stream, std::uint64_t)>;
template <int Rounds>
std::vector<neighbor> neighbors() {
  return {
      [](stream s, std::uint64_t g) { return block<Rounds>(s, g + 1); },
      [](stream s, std::uint64_t g) { return block<Rounds>((++s.step, s), g); },
      [](stream s, std::uint64_t g) { return block<Rounds>((++s.worker, s), g); },
      [](stream s, std::uint64_t g) { return block<Rounds>((++s.seed, s), g); },
      [](stream s, std::uint64_t g) { return block<Rounds>((s.use = purpose::reduce, s), g); },
  };
}

/// Bits of a block against bits of its neighbors: each of the 128 must change with probability 1/2.
template <int Rounds>
double change_of_bits() {
  constexpr std::uint64_t n = 1U << 15;
  double worst = 0;
  for (neighbor const& next : neighbors<Rounds>()) {
    std::array<std::uint64_t, 128> changed{}, set{};
    stream const s{42, 0, 0, purpose::encode};
    for (std::uint64_t g = 0; g < n; ++g) {
      words4 const a = block<Rounds>(s, g), b = next(s, g);
      for (std::size_t bit = 0; bit < 128; ++bit) {
        std::uint32_t const x = a.word[bit / 32] >> (bit % 32), y = b.word[bit / 32] >> (bit % 32);
        changed[bit] += (x ^ y) & 1U;
        set[bit] += x & 1U;
      }
    }
    for (std::size_t bit = 0; bit < 128; ++bit)
      worst = std::max({worst, z_of(changed[bit], n), z_of(set[bit], n)});
  }
  return worst;
}

/// Pairs of bytes, of one block and its neighbors, in 65,536 bins.
template <int Rounds>
double pairs_of_bytes() {
  constexpr std::uint64_t n = 1U << 19;
  double worst = 0;
  stream const s{7, 3, 1, purpose::requantize};
  for (neighbor const& next : neighbors<Rounds>())
    for (int i : {0, 5, 10, 15}) {
      std::vector<std::uint32_t> across(65536, 0), within(65536, 0);
      for (std::uint64_t g = 0; g < n; ++g) {
        words4 const a = block<Rounds>(s, g), b = next(s, g);
        ++across[byte_of(a, i) << 8 | byte_of(b, i)];
        ++within[byte_of(b, i) << 8 | byte_of(b, (i + 5) % 16)];
      }
      worst = std::max({worst, z_of(across, n), z_of(within, n)});
    }
  return worst;
}

/// Flipping one bit of counter or key must change each bit of the block with probability 1/2.
template <int Rounds>
double avalanche() {
  constexpr std::uint64_t n = 1U << 10;
  double worst = 0;
  for (std::size_t flip = 0; flip < 192; ++flip) {
    std::array<std::uint64_t, 128> changed{};
    for (std::uint64_t g = 0; g < n; ++g) {
      std::uint32_t in[6] = {static_cast<std::uint32_t>(g),     0,  static_cast<std::uint32_t>(g % 7),
                             static_cast<std::uint32_t>(g % 5), 42, 0};
      words4 const a = philox<Rounds>({{in[0], in[1], in[2], in[3]}}, in[4], in[5]);
      in[flip / 32] ^= 1U << (flip % 32);
      words4 const b = philox<Rounds>({{in[0], in[1], in[2], in[3]}}, in[4], in[5]);
      for (std::size_t bit = 0; bit < 128; ++bit)
        changed[bit] += ((a.word[bit / 32] ^ b.word[bit / 32]) >> (bit % 32)) & 1U;
    }
    for (std::uint64_t c : changed) worst = std::max(worst, z_of(c, n));
  }
  return worst;
}

template <int Rounds>
double worst() {
  return std::max({change_of_bits<Rounds>(), pairs_of_bytes<Rounds>(), avalanche<Rounds>()});
}

TEST(Quality, the_rounds_that_the_library_uses_pass) { EXPECT_LT(worst<gq::random::rounds>(), threshold); }
TEST(Quality, ten_rounds_pass) { EXPECT_LT(worst<10>(), threshold); }
TEST(Quality, the_battery_finds_fault_with_fewer) {
  EXPECT_GT(pairs_of_bytes<5>(), threshold);
  EXPECT_GT(change_of_bits<6>(), threshold);
  EXPECT_GT(avalanche<6>(), threshold);
}

}  // namespace
