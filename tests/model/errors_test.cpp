// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Measured errors: they agree with the exact variance of an encoding, where bounds are far above it.

#include "tests/support/refusal.hpp"

#include <globalq/model/errors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace gq = globalq;
namespace model = globalq::model;
using support::refusal;
using testing::HasSubstr;

namespace {

using vectors = std::vector<std::vector<float>>;

vectors normal(int workers, std::size_t length) {
  std::mt19937_64 bits{7};
  std::normal_distribution<float> draw;
  vectors all(static_cast<std::size_t>(workers), std::vector<float>(length));
  for (auto& x : all)
    for (float& v : x) v = draw(bits);
  return all;
}

std::vector<std::span<float const>> spans_of(vectors const& all) { return {all.begin(), all.end()}; }

/// theta of independent encodings, and the standard deviation of one measurement.
struct expected {
  double theta = 0, deviation = 0;
};

/// The exact conditional variance of the encodings, docs/theory.md: the sum of scale^2 (c - y) (y - a).
/// @param levels  ascending, from 0 to 1
/// @param scale   scale(worker)
template <class F>
expected of_encodings(vectors const& all, std::vector<double> const& levels, F const& scale) {
  double const n = static_cast<double>(all.size());
  double squares = 0, error = 0, spread = 0;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    double of_mean = 0, fourth = 0;  // moments of the error of one value of the mean
    for (std::size_t w = 0; w < all.size(); ++w) {
      double const x = std::abs(static_cast<double>(all[w][i])), y = std::min(x / scale(w), 1.0);
      auto const above = std::max(std::lower_bound(levels.begin(), levels.end(), y), levels.begin() + 1);
      double const c = *above, a = *(above - 1);
      double const variance = scale(w) * scale(w) * (c - y) * (y - a);
      of_mean += variance / (n * n);
      fourth += variance * scale(w) * scale(w) * (c - a) * (c - a) / (n * n * n * n);
      squares += x * x;
    }
    error += of_mean;
    spread += 3 * of_mean * of_mean + fourth;  // at least E e^4 of a sum of independent errors
  }
  return {n * error / squares, n * std::sqrt(spread) / squares};
}

double norm_of(std::vector<float> const& x, bool maximum) {
  double all = 0;
  for (float const v : x) {
    double const y = std::abs(static_cast<double>(v));
    all = maximum ? std::max(all, y) : all + y * y;
  }
  return maximum ? all : std::sqrt(all);
}

class MeasuredTheta : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, MeasuredTheta, testing::Values(4, 16, 64));

/// The measured theta is within five standard deviations of the exact one, and the plan's theta is above both.
template <class Operator, class Levels>
void agrees(int n, Operator const& op, char const* schedule, bool maximum, Levels const& levels_of) {
  vectors const all = normal(n, 4096);
  auto const plan = gq::plan_for(op, gq::schedule::any{std::string_view(schedule)}, n, 4096);
  ASSERT_TRUE(plan.fits) << plan.refusal;
  double scale = 0;  // a norm over all workers
  for (auto const& x : all) {
    double const of_worker = norm_of(x, maximum);
    scale = maximum ? std::max(scale, of_worker) : std::hypot(scale, of_worker);
  }
  expected const exact = of_encodings(all, levels_of(plan.levels), [&](std::size_t) { return scale; });
  double const measured =
      model::measured_theta(op, gq::schedule::any{std::string_view(schedule)}, spans_of(all));
  EXPECT_NEAR(measured, exact.theta, 5 * exact.deviation) << schedule << " " << plan.levels << " levels";
  EXPECT_LT(5 * exact.deviation, 0.25 * exact.theta);  // the comparison is a narrow one
  EXPECT_LT(measured, plan.theta);
}

std::vector<double> even(std::uint32_t count) {
  std::vector<double> all;
  for (std::uint32_t k = 0; k <= count; ++k) all.push_back(k / static_cast<double>(count));
  return all;
}
std::vector<double> powers(std::uint32_t count) {
  std::vector<double> all{0};
  for (std::uint32_t k = count; k-- > 0;) all.push_back(std::pow(2.0, -static_cast<double>(k)));
  return all;
}

TEST_P(MeasuredTheta, of_even_levels_is_the_exact_one) {
  auto const of = [&](auto norm, bool maximum) {
    gq::quantizer const op{norm, gq::levels::uniform<>{}, gq::rounding::stochastic{}, gq::wire::int16{}};
    agrees(GetParam(), op, "ring", maximum, even);
    agrees(GetParam(), op, "allgather", maximum, even);
  };
  of(gq::norm::linf{}, true);
  of(gq::norm::l2{}, false);
}

TEST_P(MeasuredTheta, of_powers_of_two_is_the_exact_one) {
  auto const of = [&](auto norm, bool maximum) {
    gq::quantizer const op{norm, gq::levels::exponential<7>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
    agrees(GetParam(), op, "allgather", maximum, powers);
  };
  of(gq::norm::linf{}, true);
  of(gq::norm::l2{}, false);
}

TEST_P(MeasuredTheta, of_a_table_is_the_exact_one) {
  std::vector<double> const table{0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1};
  auto const of = [&](auto norm, bool maximum) {
    gq::quantizer const op{norm, gq::levels::table{std::vector<double>(table)}, gq::rounding::stochastic{},
                           gq::wire::packed<4>{}};
    agrees(GetParam(), op, "allgather", maximum, [&](std::uint32_t) { return table; });
  };
  of(gq::norm::linf{}, true);
  of(gq::norm::l2{}, false);
}

// The bound is of vectors whose values are all near zero except one; normal values are far from it.
TEST(MeasuredThetaOfNormalValues, is_far_below_the_bound_under_maxima) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                         gq::wire::int16{}};
  vectors const all = normal(16, 1 << 14);
  double const bound = gq::plan_for(op, gq::schedule::ring{}, 16, 1 << 14).theta;
  EXPECT_LT(100 * model::measured_theta(op, gq::schedule::any{gq::schedule::ring{}}, spans_of(all)), bound);
}

TEST(MeasuredThetaOfSums, includes_the_rounding_of_sums) {
  gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                         gq::wire::packed<4>{}};
  vectors const all = normal(4, 1 << 14);
  auto const of = [&](char const* schedule) {
    return model::measured_theta(op, gq::schedule::any{std::string_view(schedule)}, spans_of(all));
  };
  EXPECT_GT(of("ring"), 2 * of("allgather"));
  EXPECT_GT(of("ring"), of("sra"));
}

TEST(MeasuredThetaOfZeros, is_not_a_number) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                         gq::wire::int8{}};
  vectors const all(3, std::vector<float>(100));
  EXPECT_TRUE(std::isnan(model::measured_theta(op, gq::schedule::any{gq::schedule::ring{}}, spans_of(all))));
}

TEST(MeanOnThreads, refuses_gradients_that_differ_in_length) {
  gq::uncompressed const op;
  gq::schedule::any const ring{gq::schedule::ring{}};
  std::vector<float> const one(10), other(9);
  std::vector<std::span<float const>> const both{one, other};
  EXPECT_THAT(refusal([&] { model::mean_on_threads(op, ring, both); }),
              HasSubstr("rank 1 of 2: the gradient has 9 values and the layers have 10; pass"));
  EXPECT_THAT(refusal([&] { model::mean_on_threads(op, ring, {}); }), HasSubstr("there are no gradients"));
  std::vector<std::uint64_t> const layers{4, 5};
  EXPECT_EQ(model::mean_on_threads(op, ring, std::vector<std::span<float const>>{other, other}, layers),
            other);
}

}  // namespace
