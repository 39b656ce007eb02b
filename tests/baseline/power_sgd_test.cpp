// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief PowerSGD: what it recovers exactly, what it converges to, and that all workers agree to the bit.

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/power_sgd.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

gq::adapt::model_layout matrix(std::uint64_t rows, std::uint64_t columns) {
  gq::adapt::model_layout l;
  l.add("w", {rows, columns});
  return l;
}

/// A matrix of integers of a given rank, times 2^-8.
vector of_rank(std::uint64_t rows, std::uint64_t columns, std::uint64_t rank, unsigned seed) {
  vector const a = cases::values(rows * rank, seed, 9), b = cases::values(columns * rank, seed + 1, 9);
  vector m(rows * columns);
  for (std::uint64_t i = 0; i < rows; ++i)
    for (std::uint64_t j = 0; j < columns; ++j)
      for (std::uint64_t k = 0; k < rank; ++k) m[i * columns + j] += a[i * rank + k] * b[j * rank + k] / 256;
  return m;
}

TEST(Orthogonal, columns_become_orthonormal_and_dependent_ones_zero) {
  cp::detail::orthogonalizer orthogonal;
  for (int rank : {1, 2, 5, 16}) {
    for (std::uint64_t rows : {16UL, 100UL, 1000UL}) {
      auto const r = static_cast<std::uint64_t>(rank);
      vector p = cases::values(rows * r, static_cast<unsigned>(rows) + static_cast<unsigned>(rank));
      // columns of very different lengths, and a sum of two of them
      for (std::uint64_t i = 0; i < rows; ++i) {
        p[i * r] *= 0x1p-90F;
        if (rank >= 5) p[i * r + 3] = p[i * r + 1] + p[i * r + 2];
      }
      vector const before = p;
      orthogonal(p.data(), rows, rank);
      for (std::uint64_t a = 0; a < r; ++a)
        for (std::uint64_t b = 0; b <= a; ++b) {
          double dot = 0;
          for (std::uint64_t i = 0; i < rows; ++i)
            dot += static_cast<double>(p[i * r + a]) * static_cast<double>(p[i * r + b]);
          bool const dependent = rank >= 5 && (a == 3 || b == 3);
          // each value is rounded to float32, relative to a column of length 1
          EXPECT_NEAR(dot, a == b && !dependent ? 1 : 0, 4 * 0x1p-24) << rank << " " << rows << " " << a << b;
        }
      // as Gram and Schmidt: the first column keeps its direction
      double dot = 0, length = 0;
      for (std::uint64_t i = 0; i < rows; ++i) {
        double const v = static_cast<double>(before[i * r]);
        dot += v * static_cast<double>(p[i * r]);
        length += v * v;
      }
      EXPECT_NEAR(dot / std::sqrt(length), 1, 1e-6);
    }
  }
  vector zeros(40);
  orthogonal(zeros.data(), 10, 4);
  EXPECT_EQ(zeros, vector(40));
}

TEST(PowerSgd, a_mean_of_rank_r_is_exact_but_for_rounding_from_the_first_call_on) {
  for (int n : {1, 2, 3, 8})
    for (auto [rows, columns] : {std::pair{30UL, 50UL}, {200UL, 17UL}, {64UL, 300UL}})
      for (std::uint64_t rank : {1UL, 2UL, 4UL}) {
        // every worker has its own multiple of one matrix: the mean has its rank
        vector const m = of_rank(rows, columns, rank, 5);
        std::vector<vector> x(static_cast<std::size_t>(n), m);
        for (std::size_t r = 0; r < x.size(); ++r)
          for (float& v : x[r]) v *= static_cast<float>(r + 1);
        auto const got = cases::run(x, [&] {
          return cp::power_sgd{matrix(rows, columns), {.rank = static_cast<int>(rank)}};
        });
        cases::expect_same_means(got);
        auto const mean = cases::mean_of(x);
        double const size = std::sqrt(cases::norm2(x.back()));
        double error = 0;
        for (std::size_t i = 0; i < mean.size(); ++i)
          error += std::pow(static_cast<double>(got.mean[0][i]) - mean[i], 2);
        // sums of `rows` rounded products against columns whose condition is some tens
        EXPECT_LT(std::sqrt(error), 1e-4 * size) << n << " " << rows << " " << rank;
        EXPECT_LT(std::sqrt(cases::norm2(got.rest.back())), 1e-4 * size);
      }
}

TEST(PowerSgd, what_is_left_is_what_a_projection_leaves) {
  for (int n : {1, 2, 3, 5, 9}) {
    auto const x = cases::inputs(n, 40 * 31);
    auto const got = cases::run(x, [] { return cp::power_sgd{matrix(40, 31), {.rank = 3}}; });
    cases::expect_same_means(got);
    cases::expect_mean_of_messages(x, got, 1e-2);  // values up to 1000: 2^-24 times sums of 40
    for (std::size_t r = 0; r < x.size(); ++r) {
      EXPECT_LT(cases::norm2(got.rest[r]), cases::norm2(x[r]));
      double sent = 0;  // Pythagoras
      for (std::size_t i = 0; i < x[r].size(); ++i)
        sent += std::pow(static_cast<double>(x[r][i]) - static_cast<double>(got.rest[r][i]), 2);
      EXPECT_NEAR((cases::norm2(got.rest[r]) + sent) / cases::norm2(x[r]), 1, 1e-5);
    }
  }
}

TEST(PowerSgd, calls_with_one_matrix_converge_to_its_best_approximation) {
  // diag(8, 4, 1, 1/2, 0, ..): the best of rank 2 leaves sqrt(1 + 1/4); each call makes what is wrong 16 times smaller
  vector m(24 * 20);
  float const diagonal[] = {8, 4, 1, 0.5};
  for (std::size_t i = 0; i < 4; ++i) m[i * 20 + i] = diagonal[i];
  support::on_threads(2, [&](auto& workers) {
    cp::power_sgd c{matrix(24, 20), {.rank = 2}};
    vector mean(m.size()), rest(m.size());
    double first = 0;
    for (std::uint64_t t = 0; t < 12; ++t) {
      c.reduce(workers, m, mean, rest, t);
      if (t == 0) first = cases::norm2(rest);
    }
    EXPECT_GT(first, 1.3);
    EXPECT_NEAR(cases::norm2(rest), 1.25, 1e-5);
    EXPECT_NEAR(mean[0], 8, 1e-5);
    EXPECT_NEAR(mean[21], 4, 1e-5);
    EXPECT_NEAR(mean[42], 0, 1e-5);
  });
}

TEST(PowerSgd, matrices_that_vanish_begin_anew_and_small_ones_do_not_fade) {
  support::on_threads(2, [&](auto& workers) {
    cp::power_sgd c{matrix(20, 20), {.rank = 2}};
    vector const zero(400);
    vector m = of_rank(20, 20, 2, 3), mean(400), rest(400);
    c.reduce(workers, zero, mean, rest, 0);
    EXPECT_EQ(mean, zero);
    EXPECT_EQ(rest, zero);
    for (float& v : m) v *= 0x1p-70F;  // squares are below float32
    for (std::uint64_t t = 1; t < 9; ++t) c.reduce(workers, m, mean, rest, t);
    EXPECT_LT(cases::norm2(rest), 1e-8 * cases::norm2(m));
  });
}

TEST(PowerSgd, layers_that_would_not_become_shorter_are_averaged_in_float32) {
  gq::adapt::model_layout model;
  model.add("bias", {100})
      .add("small", {4, 4})
      .add_at(130, "large", {30, 40})
      .add("scalar", {})
      .add("none", {0, 3});
  cp::power_sgd const counted{model, {.rank = 2}};
  EXPECT_EQ(counted.count(), 100U + 16 + 1 + 2 * (30 + 40));
  auto const x = cases::inputs(3, model.length());
  auto const got = cases::run(x, [&] { return cp::power_sgd{model, {.rank = 2}}; });
  cases::expect_same_means(got);
  auto const mean = cases::mean_of(x);
  for (std::size_t i = 0; i < model.length(); ++i) {
    if (i >= 116 && i < 130) {
      EXPECT_EQ(got.mean[0][i], -77.0F);
      EXPECT_EQ(got.rest[0][i], -77.0F);
    } else if (i < 116 || i == 1330) {
      EXPECT_NEAR(got.mean[0][i], mean[i], 1e-4);
      EXPECT_EQ(got.rest[0][i], 0.0F);
    }
  }
  // a rank for each layer
  cp::power_sgd const chosen{model, {.ranks = {4, 1, 0, 4, 4}}};
  EXPECT_EQ(chosen.count(), 100U + (4 + 4) + 1 + 1200);
}

TEST(PowerSgd, descent_with_feedback_goes_on_bit_for_bit_from_a_state) {
  auto const model = matrix(12, 10);
  auto const targets = cases::inputs(2, 120, 7, 10);
  std::vector<vector> straight(2), resumed(2);
  double distance = 0, before = 0;
  support::on_threads(2, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    cp::error_feedback ef{cp::power_sgd{model, {.rank = 1}}};
    vector w(120), g(120), mean(120);
    auto const descend = [&](auto& c, vector& at, std::uint64_t from, std::uint64_t to) {
      for (std::uint64_t t = from; t < to; ++t) {
        for (std::size_t i = 0; i < 120; ++i) g[i] = 0.05F * (at[i] - targets[r][i]);
        c.reduce(workers, g, mean, t);
        for (std::size_t i = 0; i < 120; ++i) at[i] -= mean[i];
      }
    };
    descend(ef, w, 0, 600);
    auto const bytes = ef.save(2, workers.rank()).bytes();
    vector again = w;
    descend(ef, w, 600, 1200);
    cp::error_feedback other{cp::power_sgd{model, {.rank = 1}}};
    cp::state const own = cp::state::parse(bytes);
    other.load({&own, 1}, 2, workers.rank());
    descend(other, again, 600, 1200);
    straight[r] = w;
    resumed[r] = again;
    if (r == 0) {
      auto const best = cases::mean_of(targets);
      for (std::size_t i = 0; i < 120; ++i) {
        distance += std::pow(static_cast<double>(w[i]) - best[i], 2);
        before += best[i] * best[i];
      }
    }
    cp::error_feedback third{cp::power_sgd{model, {.rank = 2}}};  // its second column starts at random
    cp::state const fresh = third.save(2, workers.rank());
    third.load({&own, 1}, 2, workers.rank());
    cp::state const wider = third.save(2, workers.rank());
    EXPECT_TRUE(std::ranges::equal(wider.get("q/w", 20).first(10), own.get("q/w", 10)));
    EXPECT_TRUE(std::ranges::equal(wider.get("q/w", 20).last(10), fresh.get("q/w", 20).last(10)));
    cp::error_feedback turned{cp::power_sgd{matrix(10, 12), {.rank = 1}}};
    EXPECT_THROW(turned.load({&own, 1}, 2, workers.rank()), gq::frame_error);
  });
  EXPECT_TRUE(cases::same_bits(straight[0], resumed[0]));
  EXPECT_TRUE(cases::same_bits(straight[0], straight[1]));
  EXPECT_LT(distance, 1e-4 * before);
}

TEST(PowerSgd, Q_goes_on_with_another_number_of_workers_and_means_are_the_same_on_all) {
  auto const model = matrix(12, 10);
  auto const g = [](std::uint64_t t, int rank) {
    return cases::values(120, static_cast<unsigned>(10 * t) + static_cast<unsigned>(rank), 10);
  };
  for (int before : {1, 3})
    for (int after : {2, 5}) {
      std::vector<cp::state> saved(static_cast<std::size_t>(before));
      support::on_threads(before, [&](auto& workers) {
        cp::error_feedback ef{cp::power_sgd{model, {.rank = 2}}};
        vector mean(120);
        for (std::uint64_t t = 0; t < 5; ++t) ef.reduce(workers, g(t, workers.rank()), mean, t);
        auto const bytes = ef.save(before, workers.rank()).bytes();
        saved[static_cast<std::size_t>(workers.rank())] = cp::state::parse(bytes);
      });
      auto const wanted = saved[0].get("q/w", 20);
      std::vector<vector> means(static_cast<std::size_t>(after));
      support::on_threads(after, [&](auto& workers) {
        cp::error_feedback ef{cp::power_sgd{model, {.rank = 2}}};
        ef.load(saved, after, workers.rank());
        auto const now = ef.save(after, workers.rank());
        auto const q = now.get("q/w", 20);
        EXPECT_TRUE(std::equal(q.begin(), q.end(), wanted.begin()));
        vector mean(120);
        for (std::uint64_t t = 5; t < 9; ++t) {
          ef.reduce(workers, g(t, workers.rank()), mean, t);
          auto& mine = means[static_cast<std::size_t>(workers.rank())];
          mine.insert(mine.end(), mean.begin(), mean.end());
        }
      });
      for (vector const& m : means) EXPECT_TRUE(cases::same_bits(m, means[0]));
    }
}

TEST(PowerSgd, all_worlds_and_lengths_of_vectors_are_plain_means) {
  cases::for_worlds([](auto layers) { return cp::power_sgd{layers}; },
                    [](auto const& x, auto const& got) { cases::expect_mean_of_messages(x, got, 1e-3); });
}

TEST(PowerSgd, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) {
    if (layers.length() == 300 && layers.size() == 1 && layers[0].type == gq::dtype::float32)
      layers = matrix(15, 20);
    return cp::power_sgd{layers, {.rank = 2}, settings};
  });
  EXPECT_THROW((cp::power_sgd{matrix(9, 9), {.rank = 0}}), gq::configuration_error);
  EXPECT_THROW((cp::power_sgd{matrix(9, 9), {.rank = 257}}), gq::configuration_error);
  EXPECT_THROW((cp::power_sgd{matrix(9, 9), {.ranks = {1, 2}}}), gq::configuration_error);
}

/// Products of large values leave float32, while the mean does not.
TEST(PowerSgd, a_mean_within_float32_is_found_whatever_its_products_are) {
  auto const make = [] { return cp::power_sgd{matrix(20, 20), {.rank = 2}}; };
  float const most = std::numeric_limits<float>::max();
  for (float const large : {1.0e20F, 3.0e30F, 4.0e37F, 3.0e38F})
    for (int many : {1, 3}) {
      std::vector<vector> x(3, vector(400, 1.0F));
      for (int r = 0; r < many; ++r) x[static_cast<std::size_t>(r)].assign(400, large);
      auto const got = cases::run(x, make);
      cases::expect_same_means(got);
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(got.outcome[r], cp::outcome::mean) << large;
        for (float v : got.mean[r]) EXPECT_NEAR(v / (many == 3 ? large : large / 3), 1.0F, 1e-5F);
        for (float v : got.rest[r]) EXPECT_LE(std::abs(v), 1e-5F * large);
      }
    }
  // of a higher rank: what is left over, or the mean itself, may be beyond
  std::vector<vector> x(3, vector(400));
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t i = 0; i < 400; ++i) x[r][i] = (i * i * 7 + i + r) % 5 < 2 ? most : -most;
  auto const got = cases::run(x, make);
  cases::expect_same_means(got);
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_EQ(got.outcome[r], cp::outcome::mean);
    for (float v : got.rest[r]) EXPECT_LE(std::abs(v), most);
  }
  // rank 1 stands for less than these rows of different length have: beyond float32 at the longest one
  std::vector<vector> uneven(1, vector(400));
  for (std::size_t i = 0; i < 400; ++i) uneven[0][i] = i < 20 || i % 2 == 0 ? most : most / 2;
  auto const beyond = cases::run(uneven, [] { return cp::power_sgd{matrix(20, 20), {.rank = 1}}; });
  EXPECT_EQ(beyond.outcome[0], cp::outcome::not_finite);
  for (float v : beyond.rest[0]) EXPECT_EQ(v, -77.0F);
}

gq::adapt::model_layout three_layers() {
  gq::adapt::model_layout m;
  m.add("a", {40, 30}).add("bias", {30}).add("b", {30, 50}).add("c", {20, 20});
  return m;
}

TEST(PowerSgd, ranks_that_stay_change_nothing_and_others_keep_their_columns) {
  support::on_threads(2, [&](auto& workers) {
    std::uint64_t const d = three_layers().length();
    cp::power_sgd one{three_layers(), {.rank = 3}}, same{three_layers(), {.rank = 3}};
    vector x = cases::values(d, static_cast<unsigned>(workers.rank()) + 1), y(d), z(d);
    for (std::uint64_t step = 0; step < 3; ++step) {
      one.reduce(workers, x, y, {}, step);
      same.reduce(workers, x, z, {}, step);
      same.assign(std::vector<int>{3, 3, 3, 3}, step);
      EXPECT_TRUE(cases::same_bits(y, z)) << step;
    }
    cp::state before(2, workers.rank()), after(2, workers.rank());
    one.save(before);
    EXPECT_EQ(one.count(), 3U * (70 + 80 + 40) + 30);
    one.assign(std::vector<int>{2, 1, 5, 0}, 2);
    EXPECT_EQ(one.count(), 2U * 70 + 5 * 80 + 400 + 30);
    one.save(after);
    auto const kept = [&](char const* key, std::uint64_t columns, std::uint64_t had, std::uint64_t has) {
      auto const a = before.get(key, had * columns), b = after.get(key, has * columns);
      std::uint64_t const both = std::min(had, has) * columns;
      EXPECT_TRUE(std::equal(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(both), a.begin())) << key;
      for (std::uint64_t k = had; k < has; ++k)  // others are random: not zeros
        EXPECT_GT(std::abs(b[k * columns]) + std::abs(b[k * columns + 1]), 0) << key;
    };
    kept("q/a", 30, 3, 2);
    kept("q/b", 50, 3, 5);
    EXPECT_EQ(one.reduce(workers, x, y, {}, 3), cp::outcome::mean);
    EXPECT_THROW(one.assign(std::vector<int>{1, 1, 1}, 4), gq::configuration_error);
    EXPECT_THROW(one.assign(std::vector<int>{1, 1, 1, 257}, 4), gq::configuration_error);
    EXPECT_EQ(one.count(), 2U * 70 + 5 * 80 + 400 + 30) << "nothing has changed";
    one.assign({}, 4);
    EXPECT_EQ(one.count(), 3U * (70 + 80 + 40) + 30) << "the one rank for all";
  });
}

TEST(PowerSgd, a_rank_that_grows_to_that_of_the_matrix_makes_its_mean_exact) {
  vector const m = of_rank(24, 36, 3, 5);
  support::on_threads(2, [&](auto& workers) {
    cp::power_sgd c{matrix(24, 36), {.rank = 1}};
    vector mean(m.size()), rest(m.size());
    c.reduce(workers, m, mean, rest, 0);
    double const norm = cases::norm2(m);
    EXPECT_GT(cases::norm2(rest), 1e-3 * norm);
    c.assign(std::vector<int>{3}, 0);
    c.reduce(workers, m, mean, rest, 1);
    EXPECT_LT(cases::norm2(rest), 1e-10 * norm);
  });
}

TEST(PowerSgd, ranks_chosen_while_training_are_alike_cost_no_more_and_lose_nothing) {
  int const n = 3;
  std::uint64_t const d = three_layers().length();
  std::vector<std::vector<double>> left(3, std::vector<double>(d)), sent(3, std::vector<double>(d));
  std::vector<std::vector<int>> ranks(3);
  support::on_threads(n, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    cp::adaptive mean{cp::power_sgd{three_layers(), {.rank = 4}},
                      {.candidates = {1, 2, 3, 4, 5, 6, 7, 8},
                       .reference = 4,
                       .every = 5,
                       .compress = [](gq::adapt::layer const& l) { return l.shape.size() > 1; }}};
    vector y(d);
    for (unsigned t = 0; t < 15; ++t) {
      vector g = cases::values(d, 50 * t + workers.rank() + 1U, 10);
      vector const low = of_rank(40, 30, 2, 9);  // the first layer is of rank 2, but for noise
      for (std::size_t i = 0; i < low.size(); ++i) g[i] = 64 * low[i] + g[i] / 1024;
      ASSERT_EQ(mean.reduce(workers, g, y, t), cp::outcome::mean);
      for (std::size_t i = 0; i < d; ++i) {
        sent[r][i] += static_cast<double>(y[i]);
        left[r][i] += static_cast<double>(g[i]);
      }
      if (t == 4) {
        EXPECT_LE(mean.found()->cost, 4.0 * (4 * (70 + 80 + 40) + 30));
      }
    }
    for (std::size_t i = 0; i < d; ++i) left[r][i] -= static_cast<double>(mean.feedback().error()[i]);
    for (std::size_t l = 0; l < 4; ++l) ranks[r].push_back(mean.parameter_of(l));
  });
  EXPECT_EQ(ranks[1], ranks[0]);
  EXPECT_EQ(ranks[2], ranks[0]);
  EXPECT_LT(ranks[0][0], ranks[0][2]) << "a layer of low rank gets less";
  for (std::size_t i = 0; i < d; ++i) {
    // float32 products of numbers up to 2^14 that are added 15 times: 15 * 16 terms of 2^14 * 2^-24, and as much again
    EXPECT_NEAR(sent[0][i], (left[0][i] + left[1][i] + left[2][i]) / n, 0.5) << i;
  }
}

}  // namespace
