// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The variance functional, its derivatives and the probabilities of levels against integrals and known values.

#include "tests/train/learn/support.hpp"

#include <numeric>

namespace globalq_test {
namespace {

std::vector<learn::level_set> level_sets() {
  std::vector<learn::level_set> list;
  for (bool zero_free : {false, true})
    for (std::uint32_t s : {1U, 2U, 3U, 7U, 15U}) {
      list.push_back(learn::uniform_levels(s, zero_free));
      list.push_back(learn::exponential_levels(s, 0.5, zero_free));
      list.push_back(learn::exponential_levels(s, 0.8, zero_free));
    }
  return list;
}

/// The variance of rounding r.
double of_value(learn::level_set const& l, double r) {
  std::size_t i = l.first_free();
  while (l.values[i] < r) ++i;
  double const c = l.values[i], a = i > 0 ? l.values[i - 1] : -c;
  return (c - r) * (r - a);
}

TEST(Variance, is_the_integral_of_the_variance_of_each_value) {
  for (learn::level_set const& l : level_sets()) {
    // gap by gap, where the integrand is smooth
    double expected = 0, from = 0;
    auto const p = [](double r) { return 5 * std::exp(-5 * r) / (1 - std::exp(-5.0)); };
    for (double c : l.values) {
      if (c > from)
        expected += integral(
            from, c, [&](double r) { return of_value(l, r) * p(r); }, 200);
      from = c;
    }
    EXPECT_NEAR(learn::variance(cut_exponential{5}, l), expected, 1e-13);
  }
}

TEST(Variance, of_uniform_values_and_levels_is_a_sixth_of_the_squared_gap) {
  for (std::uint32_t s = 1; s <= 127; s += 9) {
    // s gaps of 1/s, each with the integral g^3 / 6; 1e-15 is a few roundings of E r^2
    EXPECT_NEAR(learn::variance(power_density{0}, learn::uniform_levels(s)), 1 / (6.0 * s * s), 1e-15);
    // gaps of g = 2/(2s - 1) on [-1, 1]: the same integral over half as much
    double const g = 2 / (2.0 * s - 1);
    EXPECT_NEAR(learn::variance(power_density{0}, learn::uniform_levels(s, true)), g * g / 6, 1e-15);
  }
}

TEST(Variance, of_ternary_levels_is_the_mean_without_the_mean_square) {
  cut_exponential const f{7};
  EXPECT_NEAR(learn::variance(f, learn::uniform_levels(1)), f.below(1).first - f.below(1).second, 1e-16);
}

TEST(Variance, derivatives_are_the_limits_of_differences) {
  cut_exponential const f{5};
  for (learn::level_set const& l : level_sets())
    for (std::size_t i = l.first_free(); i + 1 < l.values.size(); ++i) {
      double const h = 1e-5 * l.values[i];
      learn::level_set up = l, down = l;
      up.values[i] += h;
      down.values[i] -= h;
      double const slope = (learn::variance(f, up) - learn::variance(f, down)) / (2 * h);
      // rounding of Psi (1e-16) over 2h, and h^2 times a third derivative below 1,000
      EXPECT_NEAR(learn::variance_derivative(f, l, i), slope, 2e-16 / h + 1e3 * h * h) << i;
    }
}

TEST(Variance, is_convex_in_each_level) {
  cut_exponential const f{9};
  for (bool zero_free : {false, true}) {
    learn::level_set l = learn::uniform_levels(4, zero_free);
    std::size_t const i = l.first_free();
    double const low = i > 0 ? l.values[i - 1] : 0.0, high = l.values[i + 1];
    double before = -1e9;
    for (int k = 1; k < 100; ++k) {
      l.values[i] = low + (high - low) * k / 100.0;
      double const slope = learn::variance_derivative(f, l, i);
      EXPECT_GE(slope, before);
      before = slope;
    }
  }
}

TEST(LevelProbabilities, add_up_to_one_and_keep_the_mean) {
  cut_exponential const f{5};
  for (learn::level_set const& l : level_sets()) {
    std::vector<double> const p = learn::level_probabilities(f, l);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-13);
    for (double v : p) EXPECT_GE(v, -1e-16);
    if (l.zero_free)
      continue;  // there a magnitude below l_1 becomes plus or minus l_1: the signed mean is kept
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      mean += p[i] * l.values[i];
      square += p[i] * l.values[i] * l.values[i];
    }
    EXPECT_NEAR(mean, f.below(1).first, 1e-14);
    EXPECT_NEAR(square - f.below(1).second, learn::variance(f, l), 1e-14);  // E Q^2 - E r^2 is the variance
  }
}

TEST(LevelProbabilities, of_uniform_values_are_half_at_the_ends) {
  std::vector<double> const p = learn::level_probabilities(power_density{0}, learn::uniform_levels(8));
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], i == 0 || i == 8 ? 1 / 16.0 : 1 / 8.0, 1e-15);
}

TEST(LevelSets, families_are_as_documented_and_refuse_what_no_table_takes) {
  EXPECT_EQ(learn::uniform_levels(4).values, (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(learn::uniform_levels(3, true).values, (std::vector<double>{0.2, 0.6, 1}));
  EXPECT_EQ(learn::exponential_levels(3).values, (std::vector<double>{0, 0.25, 0.5, 1}));
  EXPECT_EQ(learn::exponential_levels(3, 0.5, true).values, (std::vector<double>{0.25, 0.5, 1}));
  EXPECT_THROW(learn::uniform_levels(0), gq::configuration_error);
  EXPECT_THROW(learn::uniform_levels(128), gq::configuration_error);
  EXPECT_THROW(learn::exponential_levels(127), gq::configuration_error);
  EXPECT_THROW(learn::exponential_levels(3, 1.0), gq::configuration_error);
  EXPECT_THROW(learn::exponential_levels(3, 0.0), gq::configuration_error);
  EXPECT_THROW(static_cast<void>(learn::uniform_levels(3).symmetric()), gq::configuration_error);
  EXPECT_THROW(static_cast<void>(learn::uniform_levels(3, true).table()), gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
