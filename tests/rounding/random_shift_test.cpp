// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Random shift: code = floor(x/delta - u + 1/2) exactly, the error, the mean and the two variances.

#include "globalq/rounding/random_shift.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/rounding/suite.hpp"

namespace globalq_test {

using gq::rounding::random_shift;

INSTANTIATE_TYPED_TEST_SUITE_P(random_shift, rounding_scheme_suite, random_shift<>);
INSTANTIATE_TYPED_TEST_SUITE_P(random_shift, unbiased_rounding_suite, random_shift<>);
INSTANTIATE_TYPED_TEST_SUITE_P(random_shift_not_back, rounding_scheme_suite, random_shift<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(random_shift_not_back, unbiased_rounding_suite, random_shift<false>);

namespace {

constexpr std::int64_t one = std::int64_t{1} << 32;

/// floor(x - u + 1/2) in integers: x = parts / 2^32 and u = (word + 1) / 2^32 - 1/2.
std::int64_t defined_code(std::int64_t parts, std::uint32_t word) {
  std::int64_t const shifted = parts + one - (static_cast<std::int64_t>(word) + 1);
  return shifted >= 0 ? shifted / one : -((-shifted + one - 1) / one);
}

/// Values in units of 2^-32 that are exact floats: every gap, its ends, tiny and large fractions.
std::vector<std::int64_t> values(int s) {
  std::vector<std::int64_t> list;
  for (int k = 0; k < s; ++k)
    for (std::int64_t part : {std::int64_t{0}, one / 3 & -(std::int64_t{1} << 16), one / 2,
                              one - (std::int64_t{1} << 16), std::int64_t{1} << 16, one / 4, 3 * one / 4})
      list.push_back(k * one + part);
  for (std::int64_t tiny : {1, 2, 3, 255}) list.push_back(tiny);
  list.push_back(s * one);
  std::vector<std::int64_t> both = list;
  for (std::int64_t v : list) both.push_back(-v);
  return both;
}

float as_float(std::int64_t parts) { return std::ldexp(static_cast<float>(parts), -32); }

std::vector<std::uint32_t> many_words() {
  std::vector<std::uint32_t> list = words();
  for (std::uint64_t j = 0; j < 256; ++j) list.push_back(static_cast<std::uint32_t>((j << 24) + j * 65537));
  return list;
}

TEST(RandomShift, the_code_is_the_floor_of_the_definition_for_both_signs) {
  for (int s : {1, 2, 7, 127}) {
    gq::levels::uniform<> const levels(static_cast<std::uint32_t>(s));
    for (std::int64_t x : values(s))
      for (std::uint32_t w : many_words()) {
        std::int32_t const code = code_of(levels, random_shift<>{}, as_float(x), w);
        ASSERT_EQ(code, defined_code(x, w)) << x << " / 2^32, word " << w;
        ASSERT_LE(std::abs(code), s) << "nothing needs reserving";
      }
  }
}

TEST(RandomShift, the_shift_lies_above_minus_a_half_and_reaches_a_half) {
  static_assert(random_shift<>{}.shift(0) == 0x1p-32 - 0.5);
  static_assert(random_shift<>{}.shift(0x7fffffffU) == 0.0);
  static_assert(random_shift<>{}.shift(0xffffffffU) == 0.5);
  static_assert(random_shift<false>{}.shift(0xffffffffU) == 0.0);
  static_assert(random_shift<>{}.shifts() && !random_shift<false>{}.shifts());
}

TEST(RandomShift, shifted_back_the_error_is_at_most_half_a_gap) {
  gq::levels::uniform<> const levels(7);
  random_shift<> const rounding;
  for (std::int64_t x : values(7))
    for (std::uint32_t w : many_words()) {
      // code + u - x in units of 2^-32, exact in integers
      std::int64_t const u = static_cast<std::int64_t>(w) + 1 - one / 2;
      std::int64_t const error = code_of(levels, rounding, as_float(x), w) * one + u - x;
      ASSERT_GE(error, -one / 2) << x << ' ' << w;
      ASSERT_LE(error, one / 2) << x << ' ' << w;
      ASSERT_EQ(static_cast<double>(u) * 0x1p-32, rounding.shift(w));
    }
}

// u has the mean 2^-33 over all words ((-1/2, 1/2] in steps of 2^-32), 1/(2M) over a grid of M words.
TEST(RandomShift, the_mean_of_the_decoded_value_is_off_by_half_a_step_of_the_words_only) {
  constexpr int M = 64;
  gq::levels::uniform<> const levels(3);
  for (int i = -3 * M; i <= 3 * M; ++i) {
    double sum = 0;
    for (std::uint64_t j = 0; j < M; ++j) {
      auto const w = static_cast<std::uint32_t>(((j + 1) << 26) - 1);
      sum += code_of(levels, random_shift<>{}, static_cast<float>(i) / M, w) + random_shift<>{}.shift(w);
    }
    ASSERT_EQ(sum / M, static_cast<double>(i) / M + 1.0 / (2 * M)) << i;
  }
}

// On a grid of M words and for x on the same grid, the error takes each value i/M in (-1/2, 1/2] once: its
// mean square is 1/12 + 1/(6 M^2). Between the points of the grid it lies within 1/M of 1/12. The published v
// (1 - v) is not it.
TEST(RandomShift, shifted_back_the_variance_is_a_twelfth_of_the_squared_gap_for_every_value) {
  constexpr int M = 256;
  gq::levels::uniform<> const levels(3);
  auto const mean_square = [&](float x) {
    double sum = 0;
    for (std::uint64_t j = 0; j < M; ++j) {
      auto const w = static_cast<std::uint32_t>(((j + 1) << 24) - 1);
      double const error =
          code_of(levels, random_shift<>{}, x, w) + random_shift<>{}.shift(w) - static_cast<double>(x);
      sum += error * error;
    }
    return sum / M;
  };
  for (int i = -3 * M; i <= 3 * M; i += 7)
    ASSERT_DOUBLE_EQ(mean_square(static_cast<float>(i) / M), 1.0 / 12 + 1.0 / (6.0 * M * M)) << i;
  for (float x : {0.0001F, 0.1F, 0.33333F, 1.7F, -2.9F, 1e-6F})
    ASSERT_NEAR(mean_square(x), 1.0 / 12, 1.0 / M) << x;
}

TEST(RandomShift, not_shifted_back_the_variance_is_that_of_stochastic_rounding) {
  constexpr int M = 256;
  gq::levels::uniform<> const levels(3);
  for (int i = -3 * M; i <= 3 * M; i += 5) {
    float const x = static_cast<float>(i) / M;
    double sum = 0;
    for (std::uint64_t j = 0; j < M; ++j) {
      double const error =
          code_of(levels, random_shift<false>{}, x, static_cast<std::uint32_t>(((j + 1) << 24) - 1)) -
          static_cast<double>(x);
      sum += error * error;
    }
    double const f = std::abs(x) - std::floor(std::abs(x));
    ASSERT_DOUBLE_EQ(sum / M, f * (1 - f)) << x;
  }
}

// The definition on magnitudes: up iff u < fraction, whatever the sign.
TEST(RandomShift, not_shifted_back_a_value_and_its_opposite_get_opposite_codes) {
  gq::levels::uniform<> const levels(7);
  for (std::int64_t x : values(7))
    for (std::uint32_t w : many_words())
      ASSERT_EQ(code_of(levels, random_shift<false>{}, as_float(x), w),
                -code_of(levels, random_shift<false>{}, as_float(-x), w))
          << x << ' ' << w;
}

TEST(RandomShift, one_word_decides_for_a_whole_bucket) {
  static_assert(!random_shift<>::word_per_coordinate);
  gq::levels::uniform<> const levels(7);
  std::vector<float> const x(100, 2.5F);
  std::vector<std::int32_t> lanes(100);
  for (std::uint32_t w : words()) {
    gq::kernel::codes<16>(levels, random_shift<>{}, 1.0F, x.data(), 100, nullptr, w, lanes.data());
    for (std::int32_t code : lanes) ASSERT_EQ(code, lanes[0]);
  }
}

}  // namespace
}  // namespace globalq_test
