// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Stochastic rounding: the exact probability of each decision, its variance, and what the concept
/// refuses.

#include "globalq/rounding/stochastic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/rounding/suite.hpp"

namespace globalq_test {

using gq::rounding::stochastic;

INSTANTIATE_TYPED_TEST_SUITE_P(stochastic, rounding_scheme_suite, stochastic);
INSTANTIATE_TYPED_TEST_SUITE_P(stochastic, unbiased_rounding_suite, stochastic);

namespace {

// P(up) = threshold / 2^32 with the threshold of the level scheme: the word just below it goes up, itself
// does not.
TEST(Stochastic, the_words_below_the_threshold_go_up_and_no_others) {
  gq::levels::uniform<> const levels(127);
  for (float x : {0x1p-32F, 0x1p-20F, 0.25F, 0.3F, 0.999F, 3.3F, 64.0001F, 126.9999F}) {
    std::uint32_t const threshold = levels.locate(x).threshold;
    auto const low = static_cast<std::int32_t>(x);
    ASSERT_GT(threshold, 0U);
    for (float sign : {1.0F, -1.0F}) {
      auto const s = static_cast<std::int32_t>(sign);
      EXPECT_EQ(code_of(levels, stochastic{}, sign * x, 0), s * (low + 1));
      EXPECT_EQ(code_of(levels, stochastic{}, sign * x, threshold - 1), s * (low + 1));
      EXPECT_EQ(code_of(levels, stochastic{}, sign * x, threshold), s * low);
      EXPECT_EQ(code_of(levels, stochastic{}, sign * x, 0xffffffffU), s * low);
    }
  }
}

// A float `floor(t + u)` never rounds up a t below 2^-25; here 2^-32 does for one word of all.
TEST(Stochastic, the_smallest_fraction_that_32_bits_hold_rounds_up_for_exactly_one_word) {
  gq::levels::uniform<> const levels(127);
  EXPECT_EQ(code_of(levels, stochastic{}, 0x1p-32F, 0), 1);
  EXPECT_EQ(code_of(levels, stochastic{}, 0x1p-32F, 1), 0);
  EXPECT_EQ(code_of(levels, stochastic{}, 0x1p-33F, 0), 0) << "a bias of half of 2^-32 of a gap";
  EXPECT_EQ(code_of(levels, stochastic{}, 0x1p-149F, 0), 0);
}

// Between a and c the variance is (c - y)(y - a). On a grid of M words that holds i/M up-words exactly.
TEST(Stochastic, the_variance_is_the_product_of_the_distances_to_the_neighbors) {
  constexpr int M = 1024;
  gq::levels::uniform<> const levels(7);
  for (int i : {0, 1, 100, 512, 1000, 1023})
    for (float base : {0.0F, 3.0F, -4.0F}) {
      float const x = base < 0 ? base - static_cast<float>(i) / M : base + static_cast<float>(i) / M;
      double sum = 0;
      for (std::uint64_t j = 0; j < M; ++j) {
        double const error =
            code_of(levels, stochastic{}, x, static_cast<std::uint32_t>(((j + 1) << 22) - 1)) -
            static_cast<double>(x);
        sum += error * error;
      }
      double const f = static_cast<double>(i) / M;
      EXPECT_DOUBLE_EQ(sum / M, f * (1 - f)) << x;
    }
}

TEST(Stochastic, takes_no_part_in_decoding) {
  static_assert(!stochastic{}.shifts() && stochastic{}.shift(12345) == 0.0);
  static_assert(stochastic::word_per_coordinate && stochastic::unbiased);
}

// Types that lack one thing each.
struct no_shift {
  static constexpr bool word_per_coordinate = true;
  bool shifts() const { return false; }
  std::uint32_t word(std::uint32_t w) const { return w; }
  bool up(std::uint32_t, std::uint32_t, std::uint32_t) const { return false; }
};
struct float_shift : no_shift {
  float shift(std::uint32_t) const { return 0; }
};
struct complete : no_shift {
  double shift(std::uint32_t) const { return 0; }
};
struct keeps_words : complete {
  std::vector<std::uint32_t> kept;
};
static_assert(gq::RoundingScheme<complete>);
static_assert(!gq::RoundingScheme<no_shift>);
static_assert(!gq::RoundingScheme<float_shift>);
static_assert(!gq::RoundingScheme<keeps_words>, "kernels copy roundings bytewise");
static_assert(!gq::RoundingScheme<gq::levels::uniform<7>>);

}  // namespace
}  // namespace globalq_test
