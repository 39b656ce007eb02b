// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Times a byte: found again in samples with noise and disturbed steps, and what they change in a choice.

#include <globalq/train/adapt/lgreco.hpp>
#include <globalq/train/adapt/time_weights.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ad = globalq::adapt;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// Samples of seconds = 0.002 + sum T bytes, bytes between half and all of a group's size.
struct samples {
  std::mt19937 draw{7};
  std::vector<double> times{1e-9, 2e-9, 0, 5e-9}, sizes{4e6, 1e6, 8e6, 2e6};
  double unit() { return static_cast<double>(draw() >> 8) * 0x1p-24; }
  std::vector<double> bytes() {
    std::vector<double> b;
    for (double s : sizes) b.push_back(s * (0.5 + 0.5 * unit()));
    return b;
  }
  double seconds(std::vector<double> const& b) const {
    double t = 0.002;
    for (std::size_t k = 0; k < b.size(); ++k) t += times[k] * b[k];
    return t;
  }
};

TEST(TimeRegression, finds_what_made_the_samples) {
  samples s;
  ad::time_regression times(4);
  for (int i = 0; i < 40; ++i) {
    auto const b = s.bytes();
    times.add(b, s.seconds(b));
  }
  ad::time_model const found = times.fit();
  EXPECT_NEAR(found.base, 0.002, 1e-8);
  for (std::size_t b = 0; b < 4; ++b) EXPECT_NEAR(found.seconds_per_byte[b], s.times[b], 1e-14);
  EXPECT_GT(found.score, 1 - 1e-9);
  EXPECT_NEAR(found(s.sizes), s.seconds(s.sizes), 1e-8);
}

TEST(TimeRegression, bears_noise_and_disturbed_steps) {
  samples s;
  ad::time_regression times(4);
  int const n = 1000;
  double const noise = 2e-4;  // evenly spread, of +- this
  for (int i = 0; i < n; ++i) {
    auto const b = s.bytes();
    times.add(b, s.seconds(b) + noise * (2 * s.unit() - 1) +
                     (i % 20 == 0 ? 0.1 : 0.0));  // 5 % take ten times as long
  }
  ad::time_model const found = times.fit();
  // The deviation of a slope is sigma / (sqrt(n) times that of the bytes), both evenly spread. Huber's weights bound a
  // disturbed step's pull by 1.345 * 1.4826 medians, 2 noise / 2: 5 % of them shift the base by about 5 % of that.
  for (std::size_t b = 0; b < 4; ++b) {
    double const deviation = (noise / std::sqrt(3.0)) / (std::sqrt(n) * s.sizes[b] * 0.5 / std::sqrt(12.0));
    EXPECT_NEAR(found.seconds_per_byte[b], s.times[b], 6 * deviation) << b;
    EXPECT_GE(found.seconds_per_byte[b], 0);
  }
  EXPECT_NEAR(found.base, 0.002, 6e-4);
}

TEST(TimeRegression, what_samples_do_not_tell_is_as_for_all_bytes) {
  ad::time_regression together(2), constant(2), absent(2);
  for (int i = 1; i <= 10; ++i) {
    std::vector<double> const b{1000.0 * i, 3000.0 * i}, c{1000.0 * i, 500.0}, d{1000.0 * i, 0.0};
    together.add(b, 1e-6 * 4000 * i);
    constant.add(c, 1e-6 * 1000 * i + 0.5);
    absent.add(d, 1e-6 * 1000 * i);
  }
  for (ad::time_regression const& r : {together, constant, absent}) {
    ad::time_model const found = r.fit();
    EXPECT_NEAR(found.seconds_per_byte[0], 1e-6, 1e-10);
    EXPECT_NEAR(found.seconds_per_byte[1], 1e-6, 1e-10);
  }
}

TEST(TimeRegression, refuses_what_tells_nothing) {
  ad::time_regression times(2);
  std::vector<double> const b{1, 2}, three(3), negative{1, -2};
  EXPECT_THROW(ad::time_regression(0), globalq::configuration_error);
  EXPECT_THROW(times.add(three, 1), globalq::configuration_error);
  EXPECT_THROW(times.add(negative, 1), globalq::configuration_error);
  EXPECT_THROW(times.add(b, -1), globalq::configuration_error);
  EXPECT_THROW(static_cast<void>(times.fit()), globalq::configuration_error);
  times.add(b, 1);
  times.add(b, 2);
  try {
    static_cast<void>(times.fit());
    FAIL();
  } catch (globalq::configuration_error const& e) {
    EXPECT_THAT(e.what(), HasSubstr("2 samples, all of the same bytes"));
  }
}

TEST(Weighted, layers_of_a_slow_group_are_compressed_more) {
  ad::choice_table table;  // two layers alike; only one can be compressed within the budget
  table.add({{100, 3}, {200, 1}}, "hidden");
  table.add({{100, 3.5}, {200, 1}}, "exposed");
  double const budget = 4.5;
  EXPECT_THAT(ad::lgreco{}(table, budget).choices, testing::AnyOf(ElementsAre(0U, 1U), ElementsAre(1U, 0U)));
  std::vector<std::size_t> const group{0, 1};
  for (bool exposed : {false, true}) {
    ad::time_model const times{0, {exposed ? 1e-9 : 2e-9, exposed ? 2e-9 : 1e-9}, 1};
    ad::choice_table const by_time = ad::weighted(table, group, times);
    EXPECT_EQ(by_time[1][0].error, 3.5);
    EXPECT_EQ(by_time.name(1), "exposed");
    ad::selection const s = ad::lgreco{}(by_time, budget);
    EXPECT_EQ(s.choices[0], exposed ? 1U : 0U);
    EXPECT_DOUBLE_EQ(s.cost, 400e-9);
  }
  std::vector<std::size_t> const none, far{0, 2};
  EXPECT_THROW(static_cast<void>(ad::weighted(table, none, {})), globalq::configuration_error);
  EXPECT_THROW(static_cast<void>(ad::weighted(table, far, {0, {1, 1}, 1})), globalq::configuration_error);
}

}  // namespace
