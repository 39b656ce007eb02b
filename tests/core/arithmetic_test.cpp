// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The scalar operations that equal bits everywhere rest on.

#include "globalq/core/arithmetic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace {

namespace gq = globalq;

TEST(Arithmetic, powers_of_two_are_exact_over_the_whole_range) {
  for (int e = -126; e <= 127; ++e) ASSERT_EQ(gq::power_of_two_float(e), std::ldexp(1.0F, e)) << e;
  for (int e = -1074; e <= 1023; ++e) ASSERT_EQ(gq::power_of_two(e), std::ldexp(1.0, e)) << e;
  EXPECT_EQ(gq::power_of_two(-1075), 0.0);
  EXPECT_EQ(gq::power_of_two(-100000), 0.0);
}

TEST(Arithmetic, exponent_of_finds_the_power_below_for_normal_and_subnormal_numbers) {
  for (int e = -1074; e <= 1023; ++e)
    for (double sign : {1.0, -1.0}) {
      double const low = std::ldexp(1.0, e);
      ASSERT_EQ(gq::exponent_of(sign * low), e);
      double const high =
          e == 1023 ? std::numeric_limits<double>::max() : std::nextafter(std::ldexp(1.0, e + 1), 0.0);
      if (high >= low) {
        ASSERT_EQ(gq::exponent_of(sign * high), e);
      }
    }
  EXPECT_EQ(gq::exponent_of(0.0), -1075);
  EXPECT_EQ(gq::exponent_of(-0.0), -1075);
}

TEST(Arithmetic, with_sign_takes_the_magnitude_of_one_and_the_sign_of_the_other) {
  EXPECT_EQ(gq::with_sign(3.0F, gq::bits_of(-1.0F)), -3.0F);
  EXPECT_EQ(gq::with_sign(-3.0F, gq::bits_of(1.0F)), 3.0F);
  EXPECT_EQ(gq::bits_of(gq::with_sign(0.0F, 0xffffffffU)), gq::float_sign);
}

TEST(Arithmetic, rotate_left_by_0_and_32_changes_nothing) {
  EXPECT_EQ(gq::rotate_left(0x12345678U, 0), 0x12345678U);
  EXPECT_EQ(gq::rotate_left(0x12345678U, 8), 0x34567812U);
  EXPECT_EQ(gq::rotate_left(0x12345678U, 24), 0x78123456U);
  EXPECT_EQ(gq::rotate_left(0x12345678U, 32), 0x12345678U);
}

TEST(Arithmetic, log2_ceil_is_the_height_of_a_balanced_tree) {
  int const expected[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
  for (std::uint64_t n = 0; n < 10; ++n) EXPECT_EQ(gq::log2_ceil(n), expected[n]) << n;
  EXPECT_EQ(gq::log2_ceil(1024), 10);
  EXPECT_EQ(gq::log2_ceil(1025), 11);
  EXPECT_EQ(gq::log2_ceil(std::uint64_t{1} << 63), 63);
}

TEST(Arithmetic, divide_up_does_not_overflow) {
  EXPECT_EQ(gq::divide_up(0, 5), 0);
  EXPECT_EQ(gq::divide_up(10, 5), 2);
  EXPECT_EQ(gq::divide_up(11, 5), 3);
  EXPECT_EQ(gq::divide_up<std::uint64_t>(~std::uint64_t{0}, 2), std::uint64_t{1} << 63);
}

}  // namespace
