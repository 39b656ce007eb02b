// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Philox4x32 against the known answers that Random123 publishes (its file kat_vectors).

#include "globalq/random/philox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

namespace {

namespace gq = globalq;
using gq::random::words4;

struct known_answer {
  words4 counter;
  std::uint32_t key[2];
  std::uint32_t word[4];
};

// Counters and keys: all zeros, all ones, the first hexadecimal digits of pi.
constexpr words4 zeros{{0, 0, 0, 0}};
constexpr words4 ones{{0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}};
constexpr words4 pi{{0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}};

constexpr known_answer seven_rounds[] = {
    {zeros, {0, 0}, {0x5f6fb709U, 0x0d893f64U, 0x4f121f81U, 0x4f730a48U}},
    {ones, {0xffffffffU, 0xffffffffU}, {0x5207ddc2U, 0x45165e59U, 0x4d8ee751U, 0x8c52f662U}},
    {pi, {0xa4093822U, 0x299f31d0U}, {0x4dfccabaU, 0x190a87f0U, 0xc47362baU, 0xb6b5242aU}},
};

constexpr known_answer ten_rounds[] = {
    {zeros, {0, 0}, {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}},
    {ones, {0xffffffffU, 0xffffffffU}, {0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}},
    {pi, {0xa4093822U, 0x299f31d0U}, {0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}},
};

template <int Rounds>
void expect_answers(known_answer const (&answers)[3]) {
  for (known_answer const& a : answers) {
    words4 const w = gq::random::philox<Rounds>(a.counter, a.key[0], a.key[1]);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(w.word[i], a.word[i]) << "word " << i << ", counter " << a.counter.word[0];
  }
}

TEST(Philox, ten_rounds_give_the_published_answers) { expect_answers<10>(ten_rounds); }

TEST(Philox, seven_rounds_give_the_published_answers) { expect_answers<7>(seven_rounds); }

TEST(Philox, ten_rounds_are_the_default) {
  words4 const w = gq::random::philox(pi, 0xa4093822U, 0x299f31d0U);
  EXPECT_EQ(w.word[0], ten_rounds[2].word[0]);
}

// For one key Philox is a bijection of the counters, so neighbors in any of the four words must differ.
TEST(Philox, different_counters_give_different_blocks) {
  std::set<std::array<std::uint32_t, 4>> seen;
  int blocks = 0;
  for (int at = 0; at < 4; ++at)
    for (std::uint32_t value = 1; value != 0; value <<= 1) {
      words4 counter = zeros;
      counter.word[at] = value;
      words4 const w = gq::random::philox(counter, 1, 2);
      seen.insert({w.word[0], w.word[1], w.word[2], w.word[3]});
      ++blocks;
    }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(blocks));
}

TEST(Philox, both_words_of_the_key_matter) {
  words4 const a = gq::random::philox(pi, 1, 2), b = gq::random::philox(pi, 1, 3),
               c = gq::random::philox(pi, 0, 2);
  EXPECT_NE(a.word[0], b.word[0]);
  EXPECT_NE(a.word[0], c.word[0]);
}

}  // namespace
