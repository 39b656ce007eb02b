// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Levels given as numbers: the suite with and without zero, and every refusal.

#include "globalq/levels/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/levels/suite.hpp"

namespace globalq_test {

using ::testing::HasSubstr;

inline std::vector<double> evenly(std::uint32_t s) {
  std::vector<double> v;
  for (std::uint32_t k = 1; k <= s; ++k) v.push_back(static_cast<double>(k) / s);
  return v;
}

/// Magnitudes above zero: few, many, even, uneven, as small and as near to each other as float32 allows.
inline std::vector<std::vector<double>> magnitude_sets() {
  return {{1.0},
          {0.5, 1.0},
          {0.1, 0.3, 1.0},
          {0x1p-94, 1.0},
          {0x1p-94, 0x1.000002p-94, 0.5, static_cast<double>(std::nextafter(0.5F, 1.0F)), 0x1.fffffep-1, 1.0},
          {0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 1.0},
          evenly(15),
          evenly(63),
          evenly(95),
          evenly(96),
          evenly(127)};
}

struct table_cases {
  using scheme = gq::levels::table;
  static constexpr long double slack = 0x1p-50L;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<scheme_case<scheme>> list;
    for (std::vector<double> levels : magnitude_sets()) {
      levels.insert(levels.begin(), 0.0);
      list.push_back(
          {"table of " + std::to_string(levels.size()), scheme(levels), levels.size(),
           [levels](std::uint64_t k) { return static_cast<long double>(static_cast<float>(levels[k])); },
           [](std::uint64_t k) { return static_cast<std::int32_t>(k); }});
    }
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(table, level_scheme_suite, table_cases);

/// Level 0 is minus the first magnitude: a value below the first one lies between -1 and +1.
struct symmetric_cases {
  using scheme = gq::levels::symmetric;
  static constexpr long double slack = 0x1p-50L;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<scheme_case<scheme>> list;
    for (std::vector<double> const& levels : magnitude_sets())
      list.push_back({"symmetric " + std::to_string(levels.size()), scheme(levels), levels.size() + 1,
                      [levels](std::uint64_t k) {
                        float const level = static_cast<float>(levels[k == 0 ? 0 : k - 1]);
                        return static_cast<long double>(k == 0 ? -level : level);
                      },
                      [](std::uint64_t k) { return k == 0 ? -1 : static_cast<std::int32_t>(k); }});
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(symmetric, level_scheme_suite, symmetric_cases);

namespace {

using gq::levels::symmetric;
using gq::levels::table;

TEST(TableLevels, say_whether_they_have_a_zero) {
  EXPECT_FALSE((table{0.0, 0.5, 1.0}.zero_free()));
  EXPECT_TRUE((symmetric{0.5, 1.0}.zero_free()));
  EXPECT_EQ((table{0.0, 0.5, 1.0}.size()), 2U);
  EXPECT_EQ((symmetric{0.5, 1.0}.size()), 2U);
}

TEST(TableLevels, without_a_leading_zero_are_refused_with_the_scheme_that_takes_them) {
  EXPECT_THAT(refusal([] { table{0.5, 1.0}; }), HasSubstr("the first level must be 0"));
  EXPECT_THAT(refusal([] { table{0.5, 1.0}; }), HasSubstr("use levels::symmetric"));
  EXPECT_THAT(refusal([] { table(std::span<double const>{}); }), HasSubstr("the first level must be 0"));
  EXPECT_EQ(refusal([] { symmetric{0.5, 1.0}; }), "");
}

TEST(TableLevels, that_do_not_ascend_are_refused_with_the_level_at_fault) {
  EXPECT_THAT(refusal([] { table{0.0, 0.5, 0.25, 1.0}; }), HasSubstr("level 0.250000 is not above 0.500000"));
  EXPECT_THAT(refusal([] { table{0.0, 0.5, 0.5, 1.0}; }), HasSubstr("level 0.500000 is not above 0.500000"));
  EXPECT_THAT(refusal([] { table{0.0, -0.5, 1.0}; }), HasSubstr("is not above 0.000000"));
  EXPECT_THAT(refusal([] { symmetric{0.0, 1.0}; }), HasSubstr("is not above 0.000000"));
  EXPECT_THAT(refusal([] { symmetric{-0.5, 1.0}; }), HasSubstr("is not above 0.000000"));
}

TEST(TableLevels, that_are_equal_as_float32_are_refused) {
  EXPECT_THAT(refusal([] {
                table{0.0, 0.5, 0.5 + 1e-12, 1.0};
              }),
              HasSubstr("levels must ascend strictly (as float32)"));
}

TEST(TableLevels, that_do_not_end_with_1_are_refused) {
  EXPECT_THAT(refusal([] {
                table{0.0, 0.5};
              }),
              HasSubstr("the last level is 0.500000, not 1; divide all levels by it"));
  EXPECT_THAT(refusal([] { table{0.0, 0.5, 1.0, 2.0}; }), HasSubstr("the last level is 2.000000, not 1"));
  EXPECT_THAT(refusal([] { symmetric{0.5}; }), HasSubstr("not 1; divide all levels by it"));
  EXPECT_FALSE(refusal([] { table{0.0, 0.5, 1.0 - 1e-12}; }).empty()) << "1 as float32 only";
}

TEST(TableLevels, of_the_wrong_number_are_refused_with_the_number) {
  std::vector<double> levels = evenly(128);
  EXPECT_THAT(refusal([&] { symmetric{std::span<double const>(levels)}; }),
              HasSubstr("128 non-zero levels; give 1 to 127"));
  levels.insert(levels.begin(), 0.0);
  EXPECT_THAT(refusal([&] { table{std::span<double const>(levels)}; }),
              HasSubstr("128 non-zero levels; give 1 to 127"));
  EXPECT_THAT(refusal([] { table{0.0}; }), HasSubstr("0 non-zero levels; give 1 to 127"));
  EXPECT_THAT(refusal([] { symmetric(std::span<double const>{}); }),
              HasSubstr("0 non-zero levels; give 1 to 127"));
}

TEST(TableLevels, with_nan_or_infinity_are_refused) {
  double const nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(refusal([&] { table{nan, 1.0}; }).empty());
  EXPECT_FALSE(refusal([&] { table{0.0, nan, 1.0}; }).empty());
  EXPECT_FALSE(refusal([&] { table{0.0, 0.5, nan}; }).empty());
  EXPECT_FALSE(refusal([&] { table{0.0, 1.0, inf}; }).empty());
  EXPECT_FALSE(refusal([&] { symmetric{nan}; }).empty());
}

TEST(TableLevels, that_are_too_small_for_a_float_product_are_refused) {
  EXPECT_THAT(refusal([] { table{0.0, 0x1p-95, 1.0}; }), HasSubstr("is below 2^-94; use a larger one"));
  EXPECT_EQ(refusal([] { table{0.0, 0x1p-94, 1.0}; }), "");
}

}  // namespace
}  // namespace globalq_test
