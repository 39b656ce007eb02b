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

TEST(Arithmetic, a_divisor_gives_the_quotients_of_all_numbers_below_2_to_48) {
  constexpr std::uint64_t most = (std::uint64_t{1} << 48) - 1;
  std::uint64_t state = 7;
  auto const drawn = [&state](int bits) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state ^ (state >> 29)) & ((std::uint64_t{1} << bits) - 1);
  };
  auto const check = [](std::uint64_t n, std::uint64_t d) {
    ASSERT_EQ(gq::divisor(d).quotient(n), n / d) << n << " / " << d;
  };
  for (std::uint64_t d : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{7},
                          std::uint64_t{100}, std::uint64_t{128}, std::uint64_t{8192},
                          (std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 47, most - 1, most})
    for (std::uint64_t n : {std::uint64_t{0}, d - 1, d, most - 1, most}) check(n, d);
  for (int k = 0; k < 100000; ++k) {
    std::uint64_t const d = drawn(1 + k % 48) + 1, q = drawn(48) / d;
    if (d > most) continue;
    check(drawn(48), d);
    if (q * d <= most) check(q * d, d);  // where a quotient begins, and ends
    if (q * d != 0 && q * d <= most) check(q * d - 1, d);
  }
  gq::divisor const none;
  EXPECT_EQ(none.quotient(most), 0U);
  EXPECT_EQ(none, 0U);
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
