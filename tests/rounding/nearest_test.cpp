// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Rounding to nearest: halves away from zero, whatever the word, for every level scheme.

#include "globalq/rounding/nearest.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/rounding/suite.hpp"

namespace globalq_test {

using gq::rounding::nearest;

INSTANTIATE_TYPED_TEST_SUITE_P(nearest, rounding_scheme_suite, nearest);

namespace {

// std::round: to nearest, halves away from zero.
TEST(Nearest, uniform_levels_are_rounded_as_by_std_round) {
  gq::levels::uniform<> const levels(31);
  for (int i = -31 * 64; i <= 31 * 64; ++i) {
    float const x = static_cast<float>(i) / 64;
    for (std::uint32_t w : words()) ASSERT_EQ(code_of(levels, nearest{}, x, w), std::round(x)) << x;
  }
  EXPECT_EQ(code_of(levels, nearest{}, std::nextafter(0.5F, 0.0F), 0), 0);
  EXPECT_EQ(code_of(levels, nearest{}, std::nextafter(2.5F, 0.0F), 0), 2);
  EXPECT_EQ(code_of(levels, nearest{}, -0.5F, 0), -1);
}

TEST(Nearest, exponential_levels_have_their_halves_in_the_arithmetic_middle) {
  gq::levels::exponential<> const levels(3);  // 1, 1/2, 1/4, 0 have codes 1, 2, 3, 0
  EXPECT_EQ(code_of(levels, nearest{}, 0.75F, 0), 1);
  EXPECT_EQ(code_of(levels, nearest{}, std::nextafter(0.75F, 0.0F), 0), 2);
  EXPECT_EQ(code_of(levels, nearest{}, -0.375F, 0), -2);
  EXPECT_EQ(code_of(levels, nearest{}, 0.125F, 0), 3);
  EXPECT_EQ(code_of(levels, nearest{}, std::nextafter(0.125F, 0.0F), 0), 0);
}

TEST(Nearest, symmetric_levels_without_zero_round_toward_the_sign) {
  gq::levels::symmetric const levels{0.5, 1.0};
  EXPECT_EQ(code_of(levels, nearest{}, 0.1F, 0), 1);
  EXPECT_EQ(code_of(levels, nearest{}, -0.1F, 0), -1);
  EXPECT_EQ(code_of(levels, nearest{}, 0.0F, 0), 1);
  EXPECT_EQ(code_of(levels, nearest{}, -0.0F, 0), -1);
}

TEST(Nearest, says_that_it_is_biased_and_takes_no_part_in_decoding) {
  static_assert(!nearest::unbiased && !nearest{}.shifts());
  static_assert(nearest{}.shift(0) == 0.0 && nearest{}.shift(0xffffffffU) == 0.0);
}

}  // namespace
}  // namespace globalq_test
