// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every rounding keeps to, through the loop that encodes (codes() in
/// kernel/loops.hpp). A new rounding joins with one line, `INSTANTIATE_TYPED_TEST_SUITE_P(name,
/// rounding_scheme_suite, type);`, and an unbiased one with a second line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, unbiased_rounding_suite, type);`.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "globalq/kernel/loops.hpp"
#include "globalq/levels/exponential.hpp"
#include "globalq/levels/table.hpp"
#include "globalq/levels/uniform.hpp"

namespace globalq_test {

namespace gq = globalq;

/// The code of x (in units of the norm times extent) when @p drawn is the word of its coordinate or bucket.
template <class Levels, class Rounding>
std::int32_t code_of(Levels const& levels, Rounding const& rounding, float x, std::uint32_t drawn) {
  std::int32_t code = 0;
  gq::kernel::codes<1>(levels, rounding, 1.0F, &x, 1, &drawn, rounding.word(drawn), &code);
  return code;
}

/// How many of the 2^32 words move a value with this threshold to the upper level. One comparison of the word
/// decides, so the words that do are an interval at one end: its border is found by halving.
template <class Rounding>
std::uint64_t words_that_go_up(Rounding const& rounding, std::uint32_t threshold, bool negative) {
  auto const up = [&](std::uint64_t word) {
    return bool{
        rounding.up(threshold, rounding.word(static_cast<std::uint32_t>(word)), negative ? 0xffffffffU : 0U)};
  };
  std::uint64_t const last = 0xffffffffU;
  bool const from_below = up(0), from_above = up(last);
  if (from_below == from_above) return from_below ? last + 1 : 0;
  std::uint64_t low = 0, high = last;  // up(low) == from_below, up(high) == from_above
  while (high - low > 1) {
    std::uint64_t const middle = (low + high) / 2;
    (up(middle) == from_below ? low : high) = middle;
  }
  return from_below ? high : last + 1 - high;
}

inline std::vector<std::uint32_t> thresholds() {
  return {0,           1,           2,           3,           255,         256,        1U << 16,
          0x7fffffffU, 0x80000000U, 0x80000001U, 0xdeadbeefU, 0xfffffffeU, 0xffffffffU};
}
inline std::vector<std::uint32_t> words() {
  return {0, 1, 0x0fffffffU, 0x3fffffffU, 0x7fffffffU, 0x80000000U, 0xc0000000U, 0xfffffffeU, 0xffffffffU};
}

template <class Rounding>
class rounding_scheme_suite : public ::testing::Test {};
template <class Rounding>
class unbiased_rounding_suite : public ::testing::Test {};

TYPED_TEST_SUITE_P(rounding_scheme_suite);
TYPED_TEST_SUITE_P(unbiased_rounding_suite);

TYPED_TEST_P(rounding_scheme_suite, is_a_rounding_scheme) { static_assert(gq::RoundingScheme<TypeParam>); }

TYPED_TEST_P(rounding_scheme_suite, a_code_is_one_of_the_two_neighbors) {
  TypeParam const rounding{};
  gq::levels::uniform<> const levels(15);
  for (float x = -15.0F; x <= 15.0F; x += 0.171875F)
    for (std::uint32_t w : words()) {
      std::int32_t const code = code_of(levels, rounding, x, w);
      ASSERT_LT(std::abs(static_cast<float>(code) - x), 1.0F) << x << ' ' << w;
      ASSERT_LE(std::abs(code), 15);
    }
}

TYPED_TEST_P(rounding_scheme_suite, a_level_keeps_its_code_whatever_the_word) {
  TypeParam const rounding{};
  gq::levels::uniform<> const levels(15);
  gq::levels::exponential<> const powers = gq::levels::exponential<>(7).with_headroom(2);
  for (std::uint32_t w : words()) {
    for (int k = -15; k <= 15; ++k) ASSERT_EQ(code_of(levels, rounding, static_cast<float>(k), w), k);
    for (int k = 0; k < 7; ++k) {
      ASSERT_EQ(code_of(powers, rounding, std::ldexp(1.0F, -k), w), k + 3);
      ASSERT_EQ(code_of(powers, rounding, -std::ldexp(1.0F, -k), w), -(k + 3));
    }
    ASSERT_EQ(code_of(levels, rounding, -0.0F, w), 0);
    ASSERT_EQ(code_of(powers, rounding, -0.0F, w), 0);
  }
}

TYPED_TEST_P(rounding_scheme_suite, a_value_beyond_the_norm_gets_the_last_level) {
  TypeParam const rounding{};
  gq::levels::uniform<> const levels(7);
  float const inf = std::numeric_limits<float>::infinity();
  for (float x : {7.0F, std::nextafter(7.0F, 8.0F), 8.5F, 1e30F, inf})
    for (std::uint32_t w : words()) {
      ASSERT_EQ(code_of(levels, rounding, x, w), 7);
      ASSERT_EQ(code_of(levels, rounding, -x, w), -7);
    }
}

TYPED_TEST_P(rounding_scheme_suite, many_values_get_the_codes_of_one_at_a_time) {
  TypeParam const rounding{};
  gq::levels::uniform<> const levels(127);
  std::vector<float> x(257);
  std::vector<std::uint32_t> w(257);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (static_cast<float>(i * 2654435761U % 4096) - 2048.0F) * 0.0625F;
    w[i] = static_cast<std::uint32_t>(i * 2246822519U);
  }
  for (int count : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257}) {
    std::vector<std::int8_t> lanes(258, 99);
    std::uint32_t const shared = rounding.word(w[3]);
    gq::kernel::codes<64>(levels, rounding, 1.0F, x.data(), count, w.data(), shared, lanes.data());
    for (int i = 0; i < count; ++i) {
      auto const at = static_cast<std::size_t>(i);
      ASSERT_EQ(lanes[at], code_of(levels, rounding, x[at], TypeParam::word_per_coordinate ? w[at] : w[3]))
          << count;
    }
    ASSERT_EQ(lanes[static_cast<std::size_t>(count)], 99) << "written beyond the end";
  }
}

TYPED_TEST_P(unbiased_rounding_suite, exactly_threshold_words_of_all_2_to_32_go_up_for_both_signs) {
  TypeParam const rounding{};
  for (std::uint32_t t : thresholds()) {
    EXPECT_EQ(words_that_go_up(rounding, t, false), t);
    EXPECT_EQ(words_that_go_up(rounding, t, true), t);
  }
}

// On the grid of words (j + 1) 2^28 - 1, j = 0..15, a fraction of i/16 goes up exactly i times in 16, so the
// mean of the codes is the value: for any levels, both signs, and levels without zero.
TYPED_TEST_P(unbiased_rounding_suite, the_mean_over_a_grid_of_words_is_the_value) {
  TypeParam const rounding{};
  auto const mean = [&](auto const& levels, float x) {
    double sum = 0;
    for (std::uint64_t j = 0; j < 16; ++j) {
      std::int32_t const code = code_of(levels, rounding, x, static_cast<std::uint32_t>(((j + 1) << 28) - 1));
      double const level = levels.value(static_cast<std::uint32_t>(std::abs(code)));
      sum += code < 0 ? -level : level;
    }
    return sum / 16;
  };
  gq::levels::uniform<> const uniform(7);
  gq::levels::exponential<> const powers = gq::levels::exponential<>(5).with_headroom(3);
  gq::levels::table const table{0.0, 0.25, 0.5, 1.0};
  gq::levels::symmetric const symmetric{0.25, 0.5, 1.0};
  for (int i = -7 * 16; i <= 7 * 16; ++i) ASSERT_EQ(mean(uniform, static_cast<float>(i) / 16), i / 16.0);
  for (int i = -256; i <= 256; ++i) {
    // 2^-4 is the smallest of five powers: sixteenths of every gap lie on multiples of 2^-8
    float const x = static_cast<float>(i) / 256;
    float const magnitude = std::abs(x);
    int const gap = magnitude < 0x1p-4F ? -4 : std::ilogb(magnitude);
    if (std::fmod(magnitude, std::ldexp(1.0F, gap - 4)) == 0.0F) {
      ASSERT_EQ(mean(powers, x), x);
    }
  }
  for (int i = 0; i <= 16; ++i)
    for (float sign : {-1.0F, 1.0F}) {
      float const part = static_cast<float>(i) / 16;
      for (float x : {part / 4, 0.25F + part / 4, 0.5F + part / 2})
        ASSERT_EQ(mean(table, sign * x), sign * x);
    }
  for (int i = -8; i <= 8; ++i) ASSERT_EQ(mean(symmetric, static_cast<float>(i) / 32), i / 32.0);
}

REGISTER_TYPED_TEST_SUITE_P(rounding_scheme_suite, is_a_rounding_scheme, a_code_is_one_of_the_two_neighbors,
                            a_level_keeps_its_code_whatever_the_word,
                            a_value_beyond_the_norm_gets_the_last_level,
                            many_values_get_the_codes_of_one_at_a_time);
REGISTER_TYPED_TEST_SUITE_P(unbiased_rounding_suite,
                            exactly_threshold_words_of_all_2_to_32_go_up_for_both_signs,
                            the_mean_over_a_grid_of_words_is_the_value);

}  // namespace globalq_test
