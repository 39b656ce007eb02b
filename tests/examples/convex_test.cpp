// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The mathematics of examples/convex: optima, contractions, quantizers and long runs against what they are by definition.

#include "examples/convex/iterates.hpp"
#include "examples/convex/largest_signs.hpp"
#include "examples/convex/qsvrg.hpp"
#include "examples/convex/regression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

using convex::Index;
using convex::VectorXd;

double value_of(convex::regression const& f, VectorXd const& x) {
  // f is quadratic: the mean of its gradients at 0 and x, along x
  VectorXd const zero = VectorXd::Zero(f.values());
  return x.dot(f.gradient(zero, 0, f.samples()) + f.gradient(x, 0, f.samples())) / 2;
}

TEST(ConvexRegression, the_gradient_vanishes_at_the_optimum_and_gaps_are_differences_of_values) {
  auto const f = convex::random_regression(40, 90, 0.05, 1);
  VectorXd const x = VectorXd::LinSpaced(40, -1, 2);
  EXPECT_LE(f.gradient(f.optimum(), 0, 90).norm(), 1e-13 * f.gradient(x, 0, 90).norm());
  double const difference = value_of(f, x) - value_of(f, f.optimum());
  EXPECT_NEAR(f.gap(x), difference, 1e-12 * difference);
  EXPECT_EQ(f.gap(f.optimum()), 0);
}

TEST(ConvexRegression, gradients_of_samples_and_of_shares_have_the_gradient_as_mean) {
  auto const f = convex::random_regression(17, 30, 0.1, 2);
  VectorXd const x = VectorXd::LinSpaced(17, 1, -1), whole = f.gradient(x, 0, 30);
  VectorXd samples = VectorXd::Zero(17), shares = VectorXd::Zero(17);
  for (Index j = 0; j < 30; ++j) samples += f.gradient_of(j, x) / 30;
  for (int worker = 0; worker < 3; ++worker) {
    convex::share const own(30, worker, 3);
    shares += f.gradient(x, own.first, own.count) / 3;
  }
  EXPECT_LE((samples - whole).norm(), 1e-13);
  EXPECT_LE((shares - whole).norm(), 1e-13);
}

TEST(ConvexRegression, curvature_lies_between_convexity_and_smoothness_and_reaches_both) {
  auto const f = convex::random_regression(12, 40, 0.05, 3);
  VectorXd x = VectorXd::Ones(12);
  double most = 0;
  for (int i = 0; i < 2000; ++i) {  // power iteration on the Hessian
    VectorXd const next = f.gradient(f.optimum() + x, 0, 40);
    most = next.norm() / x.norm();
    EXPECT_GE(most, f.strong_convexity() * (1 - 1e-9));
    EXPECT_LE(most, f.smoothness() * (1 + 1e-9));
    x = next / next.norm();
  }
  EXPECT_NEAR(most, f.smoothness(), 1e-6 * most);
  EXPECT_GE(f.smoothness_of_each(), f.smoothness());
}

TEST(ConvexRegression, the_hessian_of_the_diagonal_one_is_diagonal) {
  auto const problem = convex::make_diagonal_regression(16, 32, 8, 4);
  for (Index k = 0; k < 16; ++k) {
    VectorXd const unit = VectorXd::Unit(16, k);
    VectorXd const column = problem.f.gradient(problem.f.optimum() + unit, 0, 32);
    EXPECT_LE((column - problem.curvatures(k) * unit).norm(), 1e-12);
    EXPECT_NEAR(problem.f.gap(problem.f.optimum() + unit), problem.curvatures(k) / 2, 1e-12);
  }
  EXPECT_NEAR(problem.curvatures.maxCoeff() / problem.curvatures.minCoeff(), 8, 1e-12);
}

TEST(ConvexRegression, the_best_points_of_all_shifts_have_the_mean_gap_it_says) {
  auto const problem = convex::make_diagonal_regression(16, 16, 4, 5);
  double const step = 0.3;
  double mean = 0;
  constexpr int shifts = 3000;
  for (int i = 0; i < shifts; ++i) {
    double const r = step * (i + 0.5) / shifts;
    VectorXd x = problem.f.optimum();
    for (double& v : x) v = std::round((v - r) / step) * step + r;
    mean += problem.gap(x) / shifts;
  }
  // the midpoint rule on parabolas with a kink each: an error of order 1 / shifts^2
  EXPECT_NEAR(mean, problem.best_of_grid(step), 1e-5 * mean);
}

TEST(ConvexQsvrg, a_plan_has_the_contraction_that_was_wanted_and_no_shorter_epoch_has) {
  for (int workers : {1, 4, 64})
    for (double blow_up : {1.0, 1.25, 2.0}) {
      convex::qsvrg_theory const theory(0.05, 1.05, workers, blow_up);
      auto const plan = theory.plan(0.9);
      EXPECT_LE(plan.contraction, 0.9 * (1 + 1e-12));
      EXPECT_EQ(plan.contraction, theory.contraction(plan.step, plan.iterations));
      // with one iteration less no step is good enough
      for (double factor = 0.5; factor < 2; factor += 0.01)
        EXPECT_GT(theory.contraction(factor * plan.step, plan.iterations - 1), 0.9);
    }
}

TEST(ConvexQsvrg, one_worker_with_the_published_blow_up_takes_the_steps_of_the_textbook) {
  // (1 / (l step T) + 4 L step) / (1 - 4 L step) with L for each gradient doubled: Johnson and Zhang's bound has 2 for 4
  double const l = 0.1, L = 2, step = 0.05 / L;
  double const by_hand = (1 / (l * step * 1000) + 4 * L * step) / (1 - 4 * L * step);
  EXPECT_NEAR(convex::qsvrg_theory(l, L, 1, 2).contraction(step, 1000), by_hand, 1e-12);
  EXPECT_EQ(convex::qsvrg_theory(l, L, 1, 2).contraction(1 / (4 * L), 1000), INFINITY);
}

TEST(ConvexQsvrg, bits_are_those_of_the_formula) {
  EXPECT_DOUBLE_EQ(convex::qsvrg_bits::published(100, 9, 32), (32 + 280.0) * 10 + 3200);
  EXPECT_DOUBLE_EQ(convex::qsvrg_bits::overhead(32), 8 * 112 - 32);
  EXPECT_EQ(convex::levels_of(1024), 32U);
  EXPECT_EQ(convex::levels_of(1025), 33U);
  EXPECT_EQ(convex::levels_of(16129), 127U);
}

/// Vectors that are hard in one way or another.
std::vector<std::vector<double>> hard_vectors() {
  std::vector<std::vector<double>> all{{},
                                       {0},
                                       {-3},
                                       {0, 0, 0, 0},
                                       {0, 0, 1e-8, 0, 0},
                                       std::vector<double>(16, -2),
                                       std::vector<double>(17, 1),
                                       std::vector<double>(5000, 0.1),
                                       {3, -3, 3, 1, 0, 1, -1}};
  convex::normals normal(6);
  for (std::size_t n : {2U, 15U, 100U, 4097U}) {
    std::vector<double> v(n), cubes(n);
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = normal();
      cubes[i] = v[i] * v[i] * v[i];
    }
    all.push_back(v);
    all.push_back(cubes);
  }
  return all;
}

TEST(ConvexLargestSigns, the_fewest_largest_values_whose_sum_is_the_norm_are_kept) {
  for (auto const& v : hard_vectors()) {
    std::vector<std::int8_t> codes(v.size());
    double const norm = convex::keep_largest_signs(v, codes);
    double sum = 0, squares = 0, least_kept = INFINITY, most_left = 0;
    std::uint64_t kept = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      squares += v[i] * v[i];
      if (codes[i] == 0) {
        most_left = std::max(most_left, std::abs(v[i]));
        continue;
      }
      EXPECT_EQ(codes[i], v[i] < 0 ? -1 : 1);
      sum += std::abs(v[i]);
      least_kept = std::min(least_kept, std::abs(v[i]));
      ++kept;
    }
    double const rounding = 1e-12 * norm;
    EXPECT_NEAR(norm, std::sqrt(squares), rounding);
    EXPECT_GE(sum, norm - rounding);
    EXPECT_LE(kept, convex::most_signs(v.size()));
    if (kept == 0) continue;
    EXPECT_LT(sum - least_kept, norm);
    EXPECT_LE(most_left, least_kept);
  }
}

TEST(ConvexLargestSigns, equal_values_attain_the_square_root) {
  for (std::size_t n : {1U, 16U, 17U, 5000U}) {
    std::vector<double> const v(n, 0.7);
    std::vector<std::int8_t> codes(n);
    convex::keep_largest_signs(v, codes);
    EXPECT_EQ(static_cast<std::uint64_t>(std::count(codes.begin(), codes.end(), 1)), convex::most_signs(n));
    EXPECT_EQ(codes[0], 1);  // ties go to the lower place
  }
}

TEST(ConvexLargestSigns, frames_say_what_was_kept_and_damaged_ones_are_refused) {
  convex::sign_frame frame;
  for (auto const& v : hard_vectors()) {
    std::vector<std::int8_t> codes(v.size()), back(v.size());
    double const norm = convex::keep_largest_signs(v, codes);
    std::vector<std::byte> bytes(frame.capacity(v.size()));
    std::size_t const used = frame.encode(norm, codes, bytes);
    ASSERT_LE(used, bytes.size());
    bytes.resize(used);
    EXPECT_EQ(frame.decode(bytes, back), static_cast<double>(static_cast<float>(norm)));
    EXPECT_EQ(back, codes);
    std::span<std::byte const> const all(bytes);
    EXPECT_THROW(frame.decode(all.first(3), back), globalq::frame_error);
    if (!v.empty()) {
      EXPECT_THROW(frame.decode(all.first(used - 1), back), globalq::frame_error);
    }
    bytes[3] = std::byte{0xff};  // a norm below zero, or none
    EXPECT_THROW(frame.decode(bytes, back), globalq::frame_error);
  }
}

TEST(ConvexLargestSigns, places_and_signs_have_fewer_bits_than_are_counted) {
  for (double n : {16.0, 256.0, 4096.0})
    for (double k = 1; k <= n; k *= 2)
      EXPECT_LE(k + (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0) + 32,
                convex::bits_of_signs(n, k, 32));
}

TEST(ConvexIterates, the_plan_is_that_of_the_theorem) {
  convex::iterates_plan const exact(0.25, 1, 0.5, 0, 0.1, 20);
  EXPECT_EQ(exact.eta, 1);
  EXPECT_DOUBLE_EQ(exact.delta, 0.5 / 256);
  EXPECT_EQ(exact.iterations, static_cast<std::uint64_t>(std::ceil(40 * std::log(200.0))));
  convex::iterates_plan const noisy(0.25, 1, 0.5, 0.03, 0.1, 20);
  EXPECT_DOUBLE_EQ(noisy.eta, 0.25);
  EXPECT_DOUBLE_EQ(noisy.delta, 0.25 * 0.5 / 256);
}

TEST(ConvexIterates, the_error_of_a_grid_is_the_share_of_that_of_a_coarser_one_that_the_plan_takes) {
  double const coarse = 0.5, alpha = 0.25, beta = 1;
  convex::iterates_plan const plan(alpha, beta, coarse, 0.03, 0.1, 20);
  double const share = plan.eta * alpha * alpha / (16 * beta * beta);
  for (double x : {0.0, 0.03, 0.2, 0.77}) {
    // random shift, and the nearest points of the coarse grid's shifts: the midpoint rule over all shifts
    double error = 0, away = 0;
    constexpr int shifts = 20000;
    for (int i = 0; i < shifts; ++i) {
      double const u = (i + 0.5) / shifts;
      auto const squared = [&](double step) {
        double const d = x / step - u - std::round(x / step - u);
        return d * step * d * step / shifts;
      };
      error += squared(plan.enough_shift);
      away += squared(coarse);
    }
    EXPECT_NEAR(error, share * away, 1e-6 * error);
    double const t = x / plan.enough_coins - std::floor(x / plan.enough_coins);
    EXPECT_LE(plan.enough_coins * plan.enough_coins * t * (1 - t), share * away * (1 + 1e-6));
    EXPECT_LE(plan.delta, plan.enough_coins);
  }
}

TEST(ConvexIterates, grids_have_the_step_and_reach_far_enough_or_are_refused) {
  auto const g = convex::grid::of_step(0.01, 1.501);
  EXPECT_EQ(g.levels, 151U);
  EXPECT_DOUBLE_EQ(g.step(), 0.01);
  EXPECT_GE(g.unit, 1.501);
  EXPECT_EQ(convex::grid::of_step(0.125, 1.5).levels, 12U);
  EXPECT_THROW(convex::grid::of_step(1e-5, 1), std::invalid_argument);
}

/// E z^2 in the long run by the exact chain of a value that is rounded up with the probability of its distance from below.
double chain(double a, double offset) {
  constexpr int half = 40;
  std::vector<double> now(2 * half), next(2 * half);
  now[half + 17] = 1;
  for (int t = 0; t < 4000; ++t) {
    std::fill(next.begin(), next.end(), 0.0);
    for (int k = -half + 1; k < half - 1; ++k) {
      double const v = offset + (1 - a) * (k - offset), below = std::floor(v);
      auto const at = static_cast<std::size_t>(static_cast<int>(below) + half);
      double const p = now[static_cast<std::size_t>(k + half)];
      next[at] += p * (1 - (v - below));
      next[at + 1] += p * (v - below);
    }
    now.swap(next);
  }
  double squares = 0;
  for (int k = -half; k < half; ++k)
    squares += now[static_cast<std::size_t>(k + half)] * (k - offset) * (k - offset);
  return squares;
}

TEST(ConvexIterates, coin_flips_end_beside_the_optimum_whatever_the_step) {
  for (double a : {0.05, 0.3, 1.0})
    for (double offset : {0.0, 0.2, 0.5, 0.9}) {
      VectorXd const curvature = VectorXd::Constant(1, 2.0),
                     optimum = VectorXd::Constant(1, 3 * (5 + offset));
      convex::long_run const expected{curvature, a / 2, 0, 3};
      EXPECT_NEAR(chain(a, offset) * 9, expected.coins(optimum), 1e-9) << a << " " << offset;
    }
}

TEST(ConvexIterates, random_shift_adds_a_twelfth_each_step) {
  VectorXd const curvatures = VectorXd::LinSpaced(3, 0.5, 2);
  convex::long_run const expected{curvatures, 0.4, 0.02, 0.1};
  double gap = 0;
  for (double h : curvatures) {
    double z2 = 7;
    for (int t = 0; t < 1000; ++t) z2 = (1 - 0.4 * h) * (1 - 0.4 * h) * z2 + 0.01 / 12 + 0.16 * 0.02;
    gap += h / 2 * z2;
  }
  EXPECT_NEAR(expected.shift(), gap, 1e-12);
  // noise apart, coin flips vary twice as much where values lie evenly between points
  convex::long_run const without{curvatures, 0.4, 0, 0.1};
  EXPECT_NEAR(without.coins_with_noise(), 2 * without.shift(), 1e-15);
}

}  // namespace
