// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief IntSGD: integers in a scale that all workers know.

#include <globalq/baseline/int_sgd.hpp>
#include <globalq/schedule/native.hpp>

#include <cmath>

#include "tests/baseline/cases.hpp"
#include "tests/baseline/sampling.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

TEST(IntSgd, rounds_without_bias_and_with_the_variance_of_two_neighbors) {
  std::uint64_t const d = 50;
  vector const x = cases::values(d, 4, 30);
  support::on_threads(1, [&](auto& workers) {
    cp::int_sgd<> c{cases::one_layer(d), {.beta = 0}};
    // a scale of sqrt(50) / sqrt(2 * 32) = 0.88: values become at most 27
    auto const s = cases::sample(x, 4000, [&](int t, vector& mean) {
      c.observe(32, 1);
      EXPECT_NEAR(c.scale(1), std::sqrt(50.0 / 64), 1e-6);
      EXPECT_EQ(c.reduce(workers, x, mean, {}, static_cast<std::uint64_t>(t)), cp::outcome::mean);
    });
    double const alpha = std::sqrt(50.0 / 64);
    double wanted = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double const t = static_cast<double>(x[i]) * alpha, up = t - std::floor(t);
      wanted += up * (1 - up) / (alpha * alpha);
      EXPECT_NEAR(s.mean[i], static_cast<double>(x[i]), 5 * 0.5 / alpha / std::sqrt(4000) + 1e-5);
    }
    EXPECT_NEAR(s.error, wanted, 5 * s.deviation);
    EXPECT_LT(s.deviation, 0.05 * wanted);
  });
}

TEST(IntSgd, the_first_call_is_in_float32_and_the_scale_follows_the_papers_rule) {
  auto const x = cases::inputs(3, 200);
  auto const best = cases::mean_of(x);
  support::on_threads(3, [&](auto& workers) {
    cp::int_sgd<std::int32_t> c{cases::one_layer(200), {.beta = 0.75}};
    vector mean(200), rest(200, 1.0F);
    EXPECT_EQ(c.scale(3), 0);
    c.reduce(workers, x[static_cast<std::size_t>(workers.rank())], mean, rest, 0);
    double first = 0;
    for (std::size_t i = 0; i < 200; ++i) {
      EXPECT_NEAR(mean[i], best[i], 1e-4);
      first += std::pow(static_cast<double>(mean[i]), 2);
    }
    EXPECT_EQ(rest, vector(200));
    EXPECT_NEAR(c.scale(3) / (std::sqrt(200.0) / std::sqrt(6 * first)), 1, 1e-6);
    c.reduce(workers, x[static_cast<std::size_t>(workers.rank())], mean, rest, 1);
    double second = 0;
    for (float v : mean) second += std::pow(static_cast<double>(v), 2);
    EXPECT_NEAR(c.scale(3) / (std::sqrt(200.0) / std::sqrt(6 * (0.75 * first + 0.25 * second))), 1, 1e-6);
    // and the state goes on from where it was
    cp::state s(3, workers.rank());
    c.save(s);
    cp::int_sgd<std::int32_t> other{cases::one_layer(200), {.beta = 0.75}};
    other.load(cp::state::parse(s.bytes()));
    EXPECT_EQ(other.scale(3), c.scale(3));
  });
}

TEST(IntSgd, the_scale_follows_the_distance_of_the_model_and_the_rate_of_the_coming_step) {
  double const d = 50, beta = 0.75, epsilon = 0.5;
  auto const wanted = [&](int n, double average, double rate) {
    return std::sqrt(d) * rate / std::sqrt(2 * n * average + rate * rate * epsilon * epsilon);
  };
  support::on_threads(2, [&](auto& workers) {
    cp::int_sgd<std::int32_t> c{cases::one_layer(50), {.beta = beta, .epsilon = epsilon}};
    vector const x = cases::values(50, 1);
    vector mean(50);
    c.reduce(workers, x, mean, {}, 0);              // what it takes from the mean is forgotten
    double const rates[] = {0.5, 0.5, 0.05, 0.05};  // drops tenfold, and the scale at once
    double average = 0;
    for (std::uint64_t k = 0; k < 4; ++k) {
      double const squared = 9.0 + static_cast<double>(k);
      average = k == 0 ? squared : beta * average + (1 - beta) * squared;
      c.observe(squared, rates[k]);
      // the average and the rate are floats: 2^-24 of each, k roundings of the average and halves of it by the root
      EXPECT_NEAR(c.scale(2) / wanted(2, average, rates[k]), 1, 4 * 0x1p-24);
      double const before = c.scale(2);
      c.reduce(workers, x, mean, {}, k + 1);
      EXPECT_EQ(c.scale(2), before);  // the mean does not count any more
    }
    // and goes on from a state, which tells that steps are observed
    cp::state s(2, workers.rank());
    c.save(s);
    cp::int_sgd<std::int32_t> other{cases::one_layer(50), {.beta = beta, .epsilon = epsilon}};
    other.load(cp::state::parse(s.bytes()));
    EXPECT_EQ(other.scale(2), c.scale(2));
    c.observe(3, 0.25);
    other.observe(3, 0.25);
    EXPECT_EQ(other.scale(2), c.scale(2));
  });
}

TEST(IntSgd, what_cannot_be_a_distance_or_a_rate_is_refused) {
  double const nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  cp::int_sgd<> c{cases::one_layer(4)};
  c.observe(2, 1);
  double const before = c.scale(1);
  for (auto const& [squared, rate] :
       {std::pair{-1.0, 1.0}, {nan, 1.0}, {1.0, 0.0}, {1.0, -0.1}, {1.0, nan}, {1.0, infinite}, {1.0, 1e-60}})
    EXPECT_THROW(c.observe(squared, rate), gq::configuration_error) << squared << ", " << rate;
  EXPECT_EQ(c.scale(1), before);
  for (vector const& bad : {vector{-2, 1, 1}, vector{1, 0, 1}, vector{1, -1, 0}}) {
    cp::state s(1, 0);
    s.put("int_sgd/average", bad);
    EXPECT_THROW(c.load(s), gq::frame_error);
    EXPECT_EQ(c.scale(1), before);
  }
}

TEST(IntSgd, too_many_workers_for_int8_are_refused_on_all_of_them) {
  vector const x(3, 1.0F);
  auto const texts = support::complaints<gq::configuration_error>(128, [&](auto& workers) {
    cp::int_sgd<std::int32_t> wide{cases::one_layer(3)};
    vector mean(3);
    EXPECT_EQ(wide.reduce(workers, x, mean, {}, 0), cp::outcome::mean);
    cp::int_sgd<> narrow{cases::one_layer(3)};
    narrow.reduce(workers, x, mean, {}, 0);
  });
  for (auto const& t : texts) {
    EXPECT_NE(t.find("128 workers"), t.npos) << t;
    EXPECT_NE(t.find("use int_sgd<std::int32_t>"), t.npos) << t;
  }
  // 127 of them have -1, 0 and 1
  std::vector<vector> const all(127, vector(3, 1.0F));
  auto const got = cases::run(all, [] {
    cp::int_sgd<> c{cases::one_layer(3)};
    c.observe(3.0 / (2 * 127), 1);  // a scale of 1, but for float32
    return c;
  });
  for (float v : got.mean[126]) EXPECT_NEAR(v, 1, 1e-6);
}

TEST(IntSgd, sums_never_wrap_and_feedback_gets_what_was_cut_off) {
  for (int n : {1, 2, 3, 9}) {
    std::vector<vector> const x(static_cast<std::size_t>(n), vector(100, 1000.0F));
    std::vector<vector> rests(static_cast<std::size_t>(n));
    support::on_threads(n, [&](auto& workers) {
      cp::int_sgd<> c{cases::one_layer(100)};
      vector mean(100);
      auto& rest = rests[static_cast<std::size_t>(workers.rank())];
      rest.resize(100);
      c.observe(100.0 / (2 * n), 1);     // scale 1
      EXPECT_NEAR(c.scale(n), 1, 1e-6);  // the average is a float
      c.reduce(workers, x[0], mean, rest, 0);
      float const most = static_cast<float>(127 / n);
      for (std::size_t i = 0; i < 100; ++i) {
        ASSERT_NEAR(mean[i], most, 1e-4);
        ASSERT_NEAR(rest[i], 1000 - most, 1e-3);
      }
    });
  }
}

TEST(IntSgd, all_worlds_and_lengths_give_the_mean_of_the_messages_over_any_schedule) {
  auto const check = [](auto const& x, auto const& got) { cases::expect_mean_of_messages(x, got, 1e-3); };
  cases::for_worlds(
      [](auto layers) {
        cp::int_sgd<> c{layers};
        c.observe(1e6, 1);
        return c;
      },
      check);
  cases::for_worlds(
      [](auto layers) {
        cp::int_sgd<std::int32_t, gq::schedule::native> c{layers};
        c.observe(1, 1);
        return c;
      },
      check);
}

TEST(IntSgd, workers_that_observed_other_steps_use_one_scale) {
  std::vector<vector> const x(2, vector(100, 10.0F));
  std::vector<vector> means(2, vector(100));
  support::on_threads(2, [&](auto& workers) {
    cp::int_sgd<> c{cases::one_layer(100)};
    c.observe(workers.rank() == 0 ? 25.0 : 1.0, 1);
    c.reduce(workers, x[0], means[static_cast<std::size_t>(workers.rank())], {}, 0);
  });
  EXPECT_EQ(means[0], vector(100, 10.0F));  // worker 0: a scale of 1
  EXPECT_EQ(means[0], means[1]);
}

TEST(IntSgd, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) {
    cp::int_sgd<> c{layers, {}, settings};
    c.observe(1, 1);
    return c;
  });
  cases::expect_manners([](auto layers, auto settings) { return cp::int_sgd<>{layers, {}, settings}; });
  EXPECT_THROW((cp::int_sgd<>{cases::one_layer(3), {.beta = 1}}), gq::configuration_error);
  EXPECT_THROW((cp::int_sgd<>{cases::one_layer(3), {.epsilon = 0}}), gq::configuration_error);
}

}  // namespace
