// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Closed forms against numeric integration, quantiles against F, and bins that keep mass and mean.

#include "tests/train/learn/support.hpp"

#include <algorithm>

namespace globalq_test {
namespace {

/// The density that truncated_normal is on [0, 1], up to a factor.
double density(double r, double mean, double deviation, learn::normal_of what) {
  auto const phi = [&](double m) { return std::exp(-0.5 * (r - m) * (r - m) / (deviation * deviation)); };
  return what == learn::normal_of::magnitudes ? phi(mean) : phi(mean) + phi(-mean);
}

TEST(TruncatedNormal, moments_are_the_integrals_of_its_density) {
  for (auto const what : {learn::normal_of::signed_values, learn::normal_of::magnitudes})
    for (auto const& [m, d] : std::vector<std::pair<double, double>>{
             {0, 0.3}, {0.02, 0.01}, {0.4, 0.2}, {-0.3, 0.2}, {0, 2}, {1.5, 0.4}}) {
      double const mean = m, deviation = d;
      learn::truncated_normal const f(mean, deviation, what);
      auto const p = [&](double r) { return density(r, mean, deviation, what); };
      double const whole = integral(0, 1, p);
      for (double t : {0.003, 0.05, 0.31, 0.77, 1.0}) {
        learn::moments const part = f.below(t);
        // 4,000 pieces of at most 1/40 of the deviation: the integration is good to 1e-11; erfc and exp to some 1e-15 of
        // terms of size 1 / P([0, 1]), which is at most 15 here
        double const tolerance = 1e-10;
        EXPECT_NEAR(part.mass, integral(0, t, p) / whole, tolerance);
        EXPECT_NEAR(part.first, integral(0, t, [&](double r) { return r * p(r); }) / whole, tolerance);
        EXPECT_NEAR(part.second, integral(0, t, [&](double r) { return r * r * p(r); }) / whole, tolerance);
      }
      EXPECT_NEAR(f.below(1).mass, 1, 1e-12);
      EXPECT_EQ(f.below(0).mass, 0);
    }
}

TEST(TruncatedNormal, small_deviations_lose_no_digits) {
  // N(0, 1e-6^2): moments of the half normal, known exactly; the cut at 1 is a million deviations away
  learn::truncated_normal const f(0, 1e-6);
  EXPECT_NEAR(f.below(1).first, 1e-6 * std::sqrt(2 / M_PI), 1e-20);
  EXPECT_NEAR(f.below(1).second, 1e-12, 1e-26);
}

TEST(TruncatedNormal, refuses_what_has_no_mass_between_0_and_1) {
  EXPECT_THROW(learn::truncated_normal(0, 0), gq::configuration_error);
  EXPECT_THROW(learn::truncated_normal(0, -1), gq::configuration_error);
  EXPECT_THROW(learn::truncated_normal(std::nan(""), 1), gq::configuration_error);
  EXPECT_THROW(learn::truncated_normal(9, 0.1), gq::configuration_error);
}

TEST(Mixture, is_the_weighted_sum_of_its_parts) {
  learn::truncated_normal const a(0, 0.1), b(0.2, 0.3);
  learn::mixture f;
  f.add(a, 3);
  f.add(b, 1);
  f.add(b, 0);
  EXPECT_EQ(f.size(), 2U);
  for (double t : {0.1, 0.5, 1.0}) {
    EXPECT_NEAR(f.below(t).mass, 0.75 * a.below(t).mass + 0.25 * b.below(t).mass, 1e-15);
    EXPECT_NEAR(f.below(t).first, 0.75 * a.below(t).first + 0.25 * b.below(t).first, 1e-15);
  }
  EXPECT_THROW(f.add(a, -1), gq::configuration_error);
}

template <class F>
void expect_inverse(F const& f, double tolerance) {
  for (double q = 0.001; q < 1; q += 0.0137) {
    double const t = f.quantile(q);
    ASSERT_GE(t, 0);
    ASSERT_LE(t, 1);
    EXPECT_NEAR(f.below(t).mass, q, tolerance);
  }
}

TEST(Quantiles, invert_the_distribution_function) {
  // halving ends within 2^-54 of t; densities here are below 50
  expect_inverse(learn::truncated_normal(0, 0.1), 1e-13);
  expect_inverse(learn::truncated_normal(0.3, 0.02, learn::normal_of::magnitudes), 1e-13);
  learn::mixture f;
  f.add(learn::truncated_normal(0, 0.02), 1);
  f.add(learn::truncated_normal(0, 0.4), 2);
  expect_inverse(f, 1e-13);
  expect_inverse(power_density{1}, 1e-13);
  expect_inverse(cut_exponential{20}, 1e-13);
}

TEST(PiecewiseUniform, keeps_mass_and_mean_of_every_bin) {
  for (std::uint32_t seed = 1; seed < 20; ++seed) {
    learn::bins b = random_bins(seed, 30);
    // mass on an edge belongs to both bins there: not for this test
    for (std::size_t k = 0; k < b.size(); ++k)
      b.mean[k] = std::clamp(b.mean[k], 0.99 * b.edge[k] + 0.01 * b.edge[k + 1],
                             0.01 * b.edge[k] + 0.99 * b.edge[k + 1]);
    learn::piecewise_uniform const f(b);
    learn::moments before{};
    for (std::size_t k = 0; k < b.size(); ++k) {
      learn::moments const up_to = f.below(b.edge[k + 1]);
      EXPECT_NEAR((up_to - before).mass, b.mass[k], 1e-15);
      EXPECT_NEAR((up_to - before).first, b.mass[k] * b.mean[k], 1e-15);
      before = up_to;
    }
    EXPECT_NEAR(f.below(1).mass, 1, 1e-14);
  }
}

TEST(PiecewiseUniform, mass_on_an_edge_is_a_jump) {
  learn::bins b;
  b.edge = {0, 0.25, 1};
  b.mass = {0.5, 0.5};
  b.mean = {0.25, 0.625};
  learn::piecewise_uniform const f(b);
  EXPECT_EQ(f.below(std::nextafter(0.25, 0.0)).mass, 0);
  EXPECT_EQ(f.below(0.25).mass, 0.5);
  EXPECT_EQ(f.quantile(0.3), 0.25);
}

TEST(PiecewiseUniform, quantiles_invert_it_or_lie_in_its_jumps) {
  for (std::uint32_t seed = 1; seed < 20; ++seed) {
    learn::piecewise_uniform const f(random_bins(seed, 30));
    double before = 0;
    for (double q = 0; q <= 1; q += 1.0 / 1024) {
      double const t = f.quantile(q);
      EXPECT_GE(t, before);
      before = t;
      EXPECT_GE(f.below(t).mass, q - 1e-12);  // a rounded t, times such a density
      EXPECT_LE(f.below(t - 1e-12).mass, q + 1e-12);
    }
  }
}

TEST(PiecewiseUniform, moments_rise_and_are_those_of_its_density) {
  learn::bins b;
  b.edge = {0, 0.5, 1};
  b.mass = {0.25, 0.75};
  b.mean = {0.125, 0.75};
  learn::piecewise_uniform const f(b);
  // [0, 0.125] has 3/4 of 0.25 with density 1.5, [0.125, 0.5] the rest with density 1/6; [0.5, 1] has density 1.5
  for (double t : {0.0625, 0.125, 0.25, 0.5, 0.8125, 1.0}) {
    double exact = 0, first = 0, second = 0;
    for (auto const& [u, v, d] : std::vector<std::tuple<double, double, double>>{
             {0, 0.125, 1.5}, {0.125, 0.5, 1.0 / 6}, {0.5, 1, 1.5}}) {
      double const w = std::min(v, t);
      if (w <= u) continue;
      exact += d * (w - u);
      first += d * (w * w - u * u) / 2;
      second += d * (w * w * w - u * u * u) / 3;
    }
    EXPECT_NEAR(f.below(t).mass, exact, 1e-15);
    EXPECT_NEAR(f.below(t).first, first, 1e-15);
    EXPECT_NEAR(f.below(t).second, second, 1e-15);
  }
}

TEST(Discretize, keeps_mass_and_mean_between_edges) {
  learn::truncated_normal const f(0, 0.2);
  std::vector<double> edge;
  for (int k = 0; k <= 64; ++k) edge.push_back(k / 64.0);
  learn::bins const b = learn::discretize(f, edge);
  for (std::size_t k = 0; k < b.size(); ++k) {
    learn::moments const m = f.below(edge[k + 1]) - f.below(edge[k]);
    EXPECT_NEAR(b.mass[k], m.mass, 1e-14);
    if (b.mass[k] > 1e-9) {
      EXPECT_NEAR(b.mean[k], m.first / m.mass, 1e-6);  // differences of 1e-16 over a mass of 1e-9
    }
    EXPECT_GE(b.mean[k], edge[k]);
    EXPECT_LE(b.mean[k], edge[k + 1]);
  }
}

}  // namespace
}  // namespace globalq_test
