// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Levels for rounding to nearest: Lloyd's iteration falls, and the learning of QSDP comes near it.

#include "globalq/train/learn/nearest.hpp"

#include "tests/train/learn/support.hpp"

namespace globalq_test {
namespace {

TEST(NearestError, is_the_integral_of_the_squared_distance) {
  cut_exponential const f{5};
  auto const p = [](double r) { return 5 * std::exp(-5 * r) / (1 - std::exp(-5.0)); };
  for (bool zero_free : {false, true})
    for (std::uint32_t s : {1U, 2U, 7U}) {
      learn::level_set const l = learn::exponential_levels(s, 0.6, zero_free);
      double expected = 0, from = 0;
      for (std::size_t i = 0; i < l.values.size(); ++i) {
        double const to = i + 1 < l.values.size() ? 0.5 * (l.values[i] + l.values[i + 1]) : 1.0;
        double const q = l.values[i];
        expected += integral(
            from, to, [&](double r) { return (r - q) * (r - q) * p(r); }, 200);
        from = to;
      }
      EXPECT_NEAR(learn::nearest_error(f, l), expected, 1e-13);
    }
}

TEST(NearestError, of_uniform_values_and_levels_is_a_twelfth_of_the_squared_gap) {
  for (std::uint32_t s : {1U, 3U, 15U})
    EXPECT_NEAR(learn::nearest_error(power_density{0}, learn::uniform_levels(s)), 1 / (12.0 * s * s), 1e-15);
}

TEST(Lloyd, never_raises_the_error_and_ends_at_means) {
  for (bool zero_free : {false, true}) {
    learn::truncated_normal const f(0, 0.2);
    learn::level_set l = learn::uniform_levels(7, zero_free);
    double before = learn::nearest_error(f, l);
    for (int k = 0; k < 50; ++k) {
      learn::solution const s =
          learn::lloyd{.size = 7, .zero_free = zero_free, .start = l, .max_steps = 1}(f);
      EXPECT_LE(s.variance, before + 1e-16);
      before = s.variance;
      l = s.levels;
    }
    learn::solution const s =
        learn::lloyd{.size = 7, .zero_free = zero_free, .max_steps = 20000, .tolerance = 1e-14}(f);
    EXPECT_TRUE(s.converged);
    expect_usable(s.levels, 7, "lloyd");
    auto const& q = s.levels.values;
    for (std::size_t i = s.levels.first_free(); i + 1 < q.size(); ++i) {
      learn::moments const m =
          f.below(0.5 * (q[i] + q[i + 1])) - (i > 0 ? f.below(0.5 * (q[i - 1] + q[i])) : learn::moments{});
      EXPECT_NEAR(q[i], m.first / m.mass,
                  1e-5);  // steps shrink by a factor near 1, so the last is not the distance
    }
  }
}

/// Magnitudes of a distribution in random order.
template <class F>
std::vector<float> draws(F const& f, std::size_t n, std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(f.quantile((static_cast<double>(draw()) + 0.5) * 0x1p-32));
  return v;
}

TEST(WeightLevels, batches_of_one_are_the_algorithm_to_the_letter) {
  std::vector<float> const v = draws(cut_exponential{4}, 500, 1);
  learn::level_set expected = learn::uniform_levels(5);
  for (float x : v) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < expected.values.size(); ++i)
      if (std::fabs(expected.values[i] - static_cast<double>(x)) <
          std::fabs(expected.values[best] - static_cast<double>(x)))
        best = i;
    if (best > 0 && best + 1 < expected.values.size())
      expected.values[best] -= 0.05 * (expected.values[best] - static_cast<double>(x));
  }
  learn::level_set const l = learn::weight_levels{.size = 5, .rate = 0.05, .batch = 1}(v);
  for (std::size_t i = 0; i < l.values.size(); ++i) EXPECT_DOUBLE_EQ(l.values[i], expected.values[i]);
}

TEST(WeightLevels, come_near_the_local_optimum_of_lloyd) {
  for (bool zero_free : {false, true})
    for (std::size_t batch : {std::size_t{1}, std::size_t{1024}}) {
      learn::truncated_normal const f(0, 0.25);
      std::vector<float> const v = draws(f, 200000, 3);
      learn::level_set const l = learn::weight_levels{.size = 7, .zero_free = zero_free, .batch = batch}(v);
      expect_usable(l, 7, "weight levels");
      double const error = learn::nearest_error(f, l);
      double const best = learn::lloyd{.size = 7, .zero_free = zero_free}(f).variance;
      double const even = learn::nearest_error(f, learn::uniform_levels(7, zero_free));
      // A level follows its cell's mean with the noise of an average over the last 2/rate = 200 values (batch 1), or of
      // those of a batch that are its own, and the excess is rate/2 of the error to first order: 0.5 %. A level with the
      // share P of the values moves with the speed P rate, so rare ones are still on their way; 5 % holds both.
      EXPECT_LE(error, 1.05 * best);
      EXPECT_GE(error, best * (1 - 1e-3));
      EXPECT_LT(error, 0.8 * even);
    }
}

TEST(WeightLevels, stay_in_order_whatever_comes) {
  for (double rate : {0.01, 1.0})
    for (std::size_t batch : {std::size_t{1}, std::size_t{7}, std::size_t{100000}}) {
      std::vector<float> v = draws(cut_exponential{300}, 5000, 2);
      v.insert(v.end(), 3000, 0.0F);
      v.insert(v.end(), 3000, 1.0F);
      v.insert(v.end(), 3000, 0.5F);
      for (bool zero_free : {false, true})
        expect_usable(
            learn::weight_levels{.size = 31, .zero_free = zero_free, .rate = rate, .batch = batch}(v), 31,
            "weight levels");
    }
}

TEST(WeightLevels, refuse_what_cannot_work) {
  std::vector<float> const v(3, 0.5F);
  EXPECT_THROW(learn::weight_levels{.size = 0}(v), gq::configuration_error);
  EXPECT_THROW(learn::weight_levels{.rate = 0}(v), gq::configuration_error);
  EXPECT_THROW(learn::weight_levels{.rate = 1.5}(v), gq::configuration_error);
  EXPECT_THROW(learn::weight_levels{.batch = 0}(v), gq::configuration_error);
  EXPECT_THROW(learn::lloyd{.size = 128}(power_density{0}), gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
