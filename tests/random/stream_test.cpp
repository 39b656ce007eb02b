// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Which bits a coordinate gets: the mapping of random/stream.hpp, pinned, and how independent it is.

#include "globalq/kernel/words.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace {

namespace gq = globalq;
using gq::kernel::fill_words;
using gq::random::purpose;
using gq::random::stream;

constexpr purpose all_purposes[] = {purpose::encode, purpose::reduce, purpose::requantize, purpose::shift,
                                    purpose::shift_requantize};

// The words of a share of Lanes groups: row w holds values 64 w + 4 lane ... of the tile.
template <int Lanes>
void expect_fill_is_word() {
  stream const s{0x0123456789abcdefULL, 123456789012345ULL, 17, purpose::requantize};
  for (std::uint64_t tile :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1000003}, (std::uint64_t{1} << 40) - 1}) {
    for (int lane = 0; lane + Lanes <= 16; lane += Lanes) {
      std::uint32_t words[16 * Lanes];
      fill_words<Lanes>(s, tile, lane, words);
      for (int w = 0; w < 4; ++w)
        for (int i = 0; i < 4 * Lanes; ++i)
          ASSERT_EQ(words[w * 4 * Lanes + i],
                    s.word(256 * tile + static_cast<std::uint64_t>(64 * w + 4 * lane + i)))
              << "tile " << tile << " lane " << lane << " row " << w << " value " << i;
    }
  }
}

TEST(Stream, fill_equals_word_for_a_whole_tile) { expect_fill_is_word<16>(); }

TEST(Stream, fill_equals_word_for_several_tiles_and_stops_behind_the_last_that_is_needed) {
  stream const s{77, 8, 9, purpose::reduce};
  for (int count : {1, 255, 256, 257, 513, 1024}) {
    std::vector<std::uint32_t> words(1024 + 256, 0xdeadbeefU);
    fill_words<64>(s, 11, 0, words.data(), count);
    int const drawn = (count + 255) / 256 * 256;
    for (int i = 0; i < drawn; ++i)
      ASSERT_EQ(words[static_cast<std::size_t>(i)], s.word(256 * 11 + static_cast<std::uint64_t>(i))) << i;
    for (int i = drawn; i < 1280; ++i) ASSERT_EQ(words[static_cast<std::size_t>(i)], 0xdeadbeefU) << i;
  }
}

// The loop for this machine and the portable one. Groups near the ends of the counter words that differ within a tile.
TEST(Stream, hand_written_and_portable_words_are_equal) {
  for (std::uint64_t seed : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x0123456789abcdef}})
    for (std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1} << 32, (std::uint64_t{1} << 48) - 1})
      for (std::uint32_t worker : {0U, 1U, 0xffffffffU})
        for (purpose use : all_purposes)
          for (std::uint64_t tile : {std::uint64_t{0}, (std::uint64_t{1} << 28) - 1, std::uint64_t{1} << 28,
                                     (std::uint64_t{1} << 40) - 1}) {
            stream const s{seed, step, worker, use};
            std::array<std::uint32_t, 256> here{}, portable{};
            fill_words<16>(s, tile, 0, here.data());
            gq::kernel::detail::fill_portable<16>(s, tile, 0, portable.data());
            ASSERT_EQ(here, portable) << "seed " << seed << " step " << step << " tile " << tile;
          }
}
TEST(Stream, fill_equals_word_for_every_share_of_a_tile) {
  expect_fill_is_word<1>();
  expect_fill_is_word<2>();
  expect_fill_is_word<4>();
  expect_fill_is_word<8>();
}

struct golden {
  std::uint64_t seed, step;
  std::uint32_t worker;
  purpose use;
  std::uint64_t coordinate;
  std::uint32_t word;
};

// Computed from the mapping's description by a program of its own. Other words are another format: bump its
// version.
TEST(Stream, golden_words_never_change) {
  golden const words[] = {
      {0, 0, 0, purpose::encode, 0, 0x5f6fb709U},
      {42, 7, 3, purpose::encode, 0, 0x93b6e98fU},
      {42, 7, 3, purpose::encode, 1, 0xb6e98f93U},
      {42, 7, 3, purpose::encode, 63, 0x8517d67eU},
      {42, 7, 3, purpose::encode, 64, 0x8b2a39d3U},
      {42, 7, 3, purpose::encode, 255, 0x50c5a31aU},
      {42, 7, 3, purpose::encode, 256, 0xad9d9db6U},
      {42, 7, 3, purpose::reduce, 1000003, 0xf2de8ee3U},
      {42, 7, 3, purpose::requantize, 1000003, 0x8a7eebacU},
      {0x0123456789abcdefULL, gq::random::max_step, 0xffffffffU, purpose::shift_requantize,
       gq::random::max_length - 1, 0x5ce4c451U},
      {0x0123456789abcdefULL, (std::uint64_t{1} << 33) + 5, 12, purpose::shift, (std::uint64_t{1} << 40) + 77,
       0x0219359fU},
  };
  for (golden const& g : words)
    EXPECT_EQ((stream{g.seed, g.step, g.worker, g.use}.word(g.coordinate)), g.word)
        << "coordinate " << g.coordinate;
}

std::array<std::uint32_t, 4> block(stream const& s, std::uint64_t group) {
  gq::random::words4 const w = s.group(group);
  return {w.word[0], w.word[1], w.word[2], w.word[3]};
}

// For one seed blocks are a bijection of the 128-bit counter: equal blocks would mean equal counters.
TEST(Stream, purpose_worker_step_and_group_never_share_a_block) {
  std::set<std::array<std::uint32_t, 4>> seen;
  std::size_t blocks = 0;
  for (purpose use : all_purposes)
    for (std::uint32_t worker : {0U, 1U, 4095U, 65536U, 0xffffffffU})
      for (std::uint64_t step :
           {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0xffffffff}, std::uint64_t{1} << 32,
            std::uint64_t{1} << 44, std::uint64_t{1} << 47, gq::random::max_step})
        for (std::uint64_t group :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0xffffffff}, std::uint64_t{1} << 32,
              std::uint64_t{1} << 43, (std::uint64_t{1} << 44) - 1}) {
          seen.insert(block({42, step, worker, use}, group));
          ++blocks;
        }
  EXPECT_EQ(seen.size(), blocks);
}

TEST(Stream, every_bit_of_step_and_group_changes_the_block) {
  std::set<std::array<std::uint32_t, 4>> seen{block({42, 0, 0, purpose::encode}, 0)};
  for (int bit = 0; bit < 48; ++bit) seen.insert(block({42, std::uint64_t{1} << bit, 0, purpose::encode}, 0));
  for (int bit = 0; bit < 44; ++bit) seen.insert(block({42, 0, 0, purpose::encode}, std::uint64_t{1} << bit));
  EXPECT_EQ(seen.size(), 1U + 48U + 44U);
}

TEST(Stream, the_longest_vector_has_as_many_groups_as_the_counter_tells_apart) {
  EXPECT_EQ(gq::random::max_length / 16, std::uint64_t{1} << 44);
  EXPECT_EQ(gq::random::max_step, (std::uint64_t{1} << 48) - 1);
}

// Sum over 256 bins of (count - expected)^2 / expected has mean 255 and variance 510: six sigma is 255 + 136.
TEST(Stream, bytes_of_every_position_are_uniform) {
  constexpr std::uint64_t values = 1U << 18;
  for (purpose use : all_purposes) {
    stream const s{2024, 5, 1, use};
    std::vector<std::uint32_t> count(4 * 256, 0);
    for (std::uint64_t tile = 0; tile < values / 256; ++tile) {
      std::uint32_t words[256];
      fill_words<16>(s, tile, 0, words);
      for (std::uint32_t w : words)
        for (std::uint32_t byte = 0; byte < 4; ++byte) ++count[256 * byte + ((w >> (8 * byte)) & 255U)];
    }
    for (std::size_t byte = 0; byte < 4; ++byte) {
      double chi = 0;
      double const expected = values / 256.0;
      for (std::size_t v = 0; v < 256; ++v) {
        double const off = count[256 * byte + v] - expected;
        chi += off * off / expected;
      }
      EXPECT_LT(chi, 391.0) << "byte " << byte;
      EXPECT_GT(chi, 119.0) << "byte " << byte << ": more even than chance";
    }
  }
}

// --- Four neighbors share a word --------------------------------------------------------------------------

// How many of the 2^32 words w have w < a and rotl(w, shift) < b. With x the top `shift` bits of w and y the
// others, w < a compares (x, y) with a's halves (xa, ya) and the rotated word compares (y, x) with b's halves
// (yb, xb): each "less" is "first half less" or "first halves equal and second less"; the four products are
// counted apart.
std::uint64_t both(std::uint32_t a, std::uint32_t b, int shift) {
  if (shift == 0) return std::min(a, b);
  std::uint64_t const xa = a >> (32 - shift), ya = a & ((std::uint64_t{1} << (32 - shift)) - 1);
  std::uint64_t const yb = b >> shift, xb = b & ((std::uint64_t{1} << shift) - 1);
  return xa * yb + std::min(xa, xb) + std::min(ya, yb) + (xa < xb && yb < ya ? 1U : 0U);
}

double correlation(std::uint32_t a, std::uint32_t b, int shift) {
  double const p = a * 0x1p-32, q = b * 0x1p-32;
  double const joint = static_cast<double>(both(a, b, shift)) * 0x1p-32;
  return (joint - p * q) / std::sqrt(p * (1 - p) * q * (1 - q));
}

std::uint32_t mixed(std::uint32_t& state) {
  state = state * 1664525U + 1013904223U;
  return state ^ (state >> 15);
}

TEST(SharedWord, the_count_of_common_words_is_the_count_by_enumeration) {
  std::uint32_t state = 1;
  for (int shift : {0, 8, 16, 24})
    for (int k = 0; k < 12; ++k) {
      // w < a is enumerated in full; b is any threshold
      std::uint32_t const a = mixed(state) >> (10 + k % 12), b = mixed(state) >> (k % 3 * 11);
      std::uint64_t found = 0;
      for (std::uint32_t w = 0; w < a; ++w) found += gq::rotate_left(w, shift) < b ? 1U : 0U;
      ASSERT_EQ(both(a, b, shift), found) << a << ' ' << b << ' ' << shift;
    }
}

TEST(SharedWord, powers_of_two_down_to_two_to_minus_24_correlate_by_at_most_one_256th) {
  for (int shift : {8, 16, 24})
    for (int k = 1; k <= 24; ++k) {
      double const c = correlation(std::uint32_t{1} << (32 - k), std::uint32_t{1} << (32 - k), shift);
      EXPECT_LE(c, 1.0 / 256) << "2^-" << k;
      EXPECT_GE(c, -0x1p-23) << "2^-" << k;
    }
}

// Below 2^-24 two equal events share the word 0 only: P = 2^-32, so (2^-32 - 4^-k) / (2^-k (1 - 2^-k)) <
// 2^(k-32).
TEST(SharedWord, powers_of_two_below_two_to_minus_24_correlate_by_two_to_the_k_minus_32) {
  for (int shift : {8, 16, 24})
    for (int k = 25; k <= 32; ++k) {
      double const c = correlation(std::uint32_t{1} << (32 - k), std::uint32_t{1} << (32 - k), shift);
      EXPECT_LE(c, std::ldexp(1.0, k - 32));
      EXPECT_GE(c, std::ldexp(1.0, k - 32) * (1 - 0x1p-16));
    }
}

// Equal thresholds T that are no powers of two: T words in all and ceil(T / 256) common ones when T < 2^24,
// so at most 2/257 (T = 257), and 1/256 (1 + 255/T) in general; beyond, the products of the halves give 1/256
// and terms of 2^-24.
TEST(SharedWord, equal_probabilities_of_at_least_two_to_minus_24_correlate_by_at_most_2_in_257) {
  double most = 0;
  for (int shift : {8, 16, 24}) {
    for (std::uint32_t t = 256; t < (1U << 18); ++t) {
      double const c = correlation(t, t, shift);
      most = std::max(most, c);
      ASSERT_LE(c, (1 + 255.0 / t) / 256) << t;
    }
    std::uint32_t state = 7;
    for (int k = 0; k < 200000; ++k) {
      std::uint32_t const t = (mixed(state) >> (k % 15)) | (1U << 17);
      ASSERT_LE(correlation(t, t, shift), 1.0 / 256 + 0x1p-24 + 1.0 / t) << t;
    }
  }
  EXPECT_NEAR(most, 2.0 / 257, 1e-6);
}

// p stands for the rarer of up and down: both are at least 2^-24. Different probabilities can be nested: "the
// top 12 bits are zero" implies "bits 23 to 20 are zero". With x the top 8 bits and y the others, split both
// events into what x alone, y alone and their interaction explain: y explains at most sqrt(2^-8) of the first
// event's deviation, x at most sqrt(2^-24) of the second's, and the interaction is one word, 2^-32 / sqrt(p
// q) <= 2^-8. Sum: 1/16 + 1/256 + 2^-12.
TEST(SharedWord,
     different_probabilities_of_at_least_two_to_minus_24_correlate_by_at_most_a_16th_and_a_256th) {
  double const bound = 1.0 / 16 + 1.0 / 256 + 0x1p-12;
  double most = 0;
  for (int shift : {8, 16, 24}) {
    for (int j = 0; j < 24; ++j)
      for (int k = 0; k < 24; ++k)
        for (std::uint32_t below : {0U, 1U}) {
          std::uint32_t const a = 0xffffff00U >> j, b = (0xffffff00U >> k) + (below != 0 && k > 0 ? 1U : 0U);
          if (a < 256 || b < 256) continue;
          double const c = correlation(a, b, shift);
          most = std::max(most, std::abs(c));
          ASSERT_LE(std::abs(c), bound) << j << ' ' << k << ' ' << shift;
        }
    std::uint32_t state = 99;
    for (int k = 0; k < 300000; ++k) {
      std::uint32_t const a = std::clamp(mixed(state) >> (k % 24), 256U, 0xffffff00U);
      std::uint32_t const b = std::clamp(mixed(state) >> (k / 24 % 24), 256U, 0xffffff00U);
      double const c = correlation(a, b, shift);
      most = std::max(most, std::abs(c));
      ASSERT_LE(std::abs(c), bound) << a << ' ' << b << ' ' << shift;
    }
  }
  EXPECT_GT(most, 1.0 / 17) << "the bound is reached but for the interaction";
}

// The covariance, which is what a sum over coordinates sees: 2^-8 min(y, y') (1 - max) + 2^-24 / 4 + 2^-32.
TEST(SharedWord, the_covariance_of_two_decisions_is_at_most_one_1024th) {
  std::uint32_t state = 5;
  for (int shift : {8, 16, 24})
    for (int k = 0; k < 300000; ++k) {
      std::uint32_t const a = mixed(state) >> (k % 32), b = mixed(state) >> (k / 32 % 32);
      double const covariance =
          static_cast<double>(both(a, b, shift)) * 0x1p-32 - (a * 0x1p-32) * (b * 0x1p-32);
      ASSERT_LE(std::abs(covariance), 0x1p-10 + 0x1p-26 + 0x1p-32) << a << ' ' << b;
    }
}

// What the mapping promises: the correlations above are those of neighbors, and other coordinates share
// nothing.
TEST(SharedWord, neighbors_see_rotations_of_one_word) {
  stream const s{1, 2, 3, purpose::encode};
  for (std::uint64_t i = 0; i < 1024; i += 4)
    for (int r = 1; r < 4; ++r)
      EXPECT_EQ(s.word(i + static_cast<std::uint64_t>(r)), gq::rotate_left(s.word(i), 8 * r));
}

}  // namespace
