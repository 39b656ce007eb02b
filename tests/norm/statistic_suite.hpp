// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every norm with a statistic of its own keeps to. A new one joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, norm_of_statistic_suite, cases);`
///
/// `cases` has `norm`, the type under test, `all()`, some of it, and `exact(one, values)`, the scale of finite values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "globalq/core/concepts.hpp"

namespace globalq_test {

template <class Cases>
struct norm_of_statistic_suite : ::testing::Test {
  using norm = typename Cases::norm;
  using statistic = typename norm::statistic;

  static std::vector<double> values(std::size_t count, unsigned seed) {
    std::mt19937 draw(seed);
    std::vector<double> x(count);
    for (double& v : x)
      v = std::ldexp(static_cast<int>(draw() % 2001) - 1000, static_cast<int>(draw() % 20) - 10);
    return x;
  }
  static bool same(statistic const& a, statistic const& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
};

TYPED_TEST_SUITE_P(norm_of_statistic_suite);

TYPED_TEST_P(norm_of_statistic_suite, is_a_norm) {
  static_assert(globalq::NormOfStatistic<typename TypeParam::norm>);
  EXPECT_FALSE(TypeParam::all().empty());
}

TYPED_TEST_P(norm_of_statistic_suite, merging_none_leaves_all_as_it_was) {
  using suite = norm_of_statistic_suite<TypeParam>;
  for (auto const& one : TypeParam::all())
    for (std::size_t count : {1, 7, 1000}) {
      auto const x = suite::values(count, 1);
      auto const s = one.measure(x.data(), static_cast<int>(count));
      EXPECT_TRUE(suite::same(one.merge(s, typename suite::statistic{}), s)) << count;
      EXPECT_TRUE(suite::same(one.merge(typename suite::statistic{}, s), s)) << count;
    }
}

/// However values are parted, up to rounding.
TYPED_TEST_P(norm_of_statistic_suite, parts_come_to_the_scale_of_all) {
  using suite = norm_of_statistic_suite<TypeParam>;
  for (auto const& one : TypeParam::all())
    for (std::size_t count : {1, 2, 17, 4096}) {
      auto const x = suite::values(count, 2);
      double const exact = TypeParam::exact(one, x);
      for (std::size_t step : {std::size_t{1}, std::size_t{5}, count}) {
        typename suite::statistic all{};
        for (std::size_t i = 0; i < count; i += step)
          all = one.merge(all, one.measure(x.data() + i, static_cast<int>(std::min(step, count - i))));
        EXPECT_NEAR(one.scale(all), exact, 1e-11 * exact) << count << " values, by " << step;
      }
    }
}

TYPED_TEST_P(norm_of_statistic_suite, float_values_are_measured_as_doubles_are) {
  using suite = norm_of_statistic_suite<TypeParam>;
  auto const x = suite::values(999, 3);
  std::vector<float> const narrow(x.begin(), x.end());  // exact
  for (auto const& one : TypeParam::all()) {
    double const wide = one.scale(one.measure(x.data(), 999));
    EXPECT_NEAR(one.scale(one.measure(narrow.data(), 999)), wide, 1e-11 * wide);
  }
}

TYPED_TEST_P(norm_of_statistic_suite, bounds_the_largest_magnitude_if_it_says_so) {
  using suite = norm_of_statistic_suite<TypeParam>;
  for (auto const& one : TypeParam::all())
    for (unsigned seed = 0; seed < 200; ++seed) {
      auto const x = suite::values(1 + seed % 5, seed);
      double largest = 0;
      for (double v : x) largest = std::max(largest, std::fabs(v));
      double const scale = one.scale(one.measure(x.data(), static_cast<int>(x.size())));
      EXPECT_TRUE(std::isfinite(scale));
      EXPECT_GE(scale, std::remove_cvref_t<decltype(one)>::bounds_largest ? largest : 0.0);
    }
}

REGISTER_TYPED_TEST_SUITE_P(norm_of_statistic_suite, is_a_norm, merging_none_leaves_all_as_it_was,
                            parts_come_to_the_scale_of_all, float_values_are_measured_as_doubles_are,
                            bounds_the_largest_magnitude_if_it_says_so);

}  // namespace globalq_test
