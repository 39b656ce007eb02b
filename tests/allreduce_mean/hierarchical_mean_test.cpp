// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Plain sums inside nodes and an operator between them: any split, the same bits, unbiased, errors on all.

#include "tests/support/calls.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/hierarchical_mean.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace gq = globalq;
using support::on_threads;
using support::values;

namespace {

std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::exponential<5>{}, dice, gq::wire::int8{}},
      gq::uncompressed{},
  };
}

std::vector<std::vector<int>> splits(int n) {
  std::vector<std::vector<int>> all = support::splits(n);
  if (n >= 3) all.push_back({1, n - 2, 1});
  if (n == 8) all.push_back({4, 4});
  return all;
}

std::vector<double> exact_mean(int n, std::size_t d) {
  std::vector<double> mean(d);
  for (int r = 0; r < n; ++r) {
    std::vector<float> const x = values(d, r);
    for (std::size_t i = 0; i < d; ++i) mean[i] += static_cast<double>(x[i]) / n;
  }
  return mean;
}

}  // namespace

TEST(HierarchicalMean, has_the_same_bits_on_all_workers_for_every_split) {
  for (gq::any_quantizer const& op : operators())
    for (char const* schedule : {"ring", "sra", "allgather"})
      for (int n : {1, 2, 3, 5, 8})
        for (auto const& nodes : splits(n))
          for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{1300}}) {
            std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
            on_threads(n, [&](auto& workers) {
              auto const r = static_cast<std::size_t>(workers.rank());
              gq::hierarchical_mean mean{workers, op, gq::schedule::any{schedule}, nodes, {.seed = 5}};
              results[r] = values(d, workers.rank());
              mean(results[r], 1);
            });
            std::vector<double> const exact = exact_mean(n, d);
            for (auto const& r : results) {
              ASSERT_TRUE(d == 0 || std::memcmp(r.data(), results[0].data(), d * sizeof(float)) == 0);
              if (!op.facts().plain) continue;
              for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(static_cast<double>(r[i]), exact[i], 4e-6);
            }
          }
}

TEST(HierarchicalMean, of_nodes_of_one_is_the_mean_of_allreduce_mean) {
  on_threads(4, [](auto& workers) {
    gq::any_quantizer const op = operators()[0];
    gq::hierarchical_mean mean{workers, op, gq::schedule::ring{}, 1, {.seed = 5}};
    gq::allreduce_mean flat{workers, op, gq::schedule::ring{}, {.seed = 5}};
    std::vector<float> x = values(3000, workers.rank()), y = x;
    mean(x, 7);
    flat(y, 7);
    EXPECT_EQ(0, std::memcmp(x.data(), y.data(), x.size() * sizeof(float)));
  });
}

/// With uneven nodes every worker still counts once. Pooled over coordinates as in tests/quantizer/vector_codec_test.cpp.
TEST(HierarchicalMean, is_unbiased_and_rounds_once_a_node) {
  constexpr std::size_t d = 600;
  constexpr int draws = 250, n = 5;
  std::vector<double> const exact = exact_mean(n, d);
  double variance[2] = {};
  int which = 0;
  for (std::vector<int> const& nodes : {std::vector<int>{3, 2}, std::vector<int>{1, 1, 1, 1, 1}}) {
    on_threads(n, [&](auto& workers) {
      gq::hierarchical_mean mean{
          workers,
          gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<3>{},
                        gq::rounding::stochastic{}, gq::wire::packed<3>{}},
          gq::schedule::allgather{},
          nodes,
          {.seed = 9}};
      std::vector<float> const x = values(d, workers.rank());
      std::vector<double> sum(d), squares(d);
      for (int k = 0; k < draws; ++k) {
        std::vector<float> y(d);
        mean(x, y, static_cast<std::uint64_t>(k));
        for (std::size_t i = 0; i < d; ++i) {
          double const e = static_cast<double>(y[i]) - exact[i];
          sum[i] += e;
          squares[i] += e * e;
        }
      }
      double error = 0, total = 0, total2 = 0;
      for (std::size_t i = 0; i < d; ++i) {
        double const v = squares[i] / draws;
        error += sum[i] * sum[i] / draws;
        total += v;
        total2 += v * v;
      }
      EXPECT_LT(error / total, 1 + 5 * std::sqrt(2 * total2) / total);
      if (workers.rank() == 0) variance[which] = total;
    });
    ++which;
  }
  EXPECT_GT(variance[0], 0);
  EXPECT_NE(variance[0], variance[1]);
}

TEST(HierarchicalMean, takes_every_type_of_values) {
  on_threads(3, [](auto& workers) {
    auto const run = [&]<class Value>(Value) {
      gq::hierarchical_mean mean{workers, operators()[0], gq::schedule::ring{}, 2};
      std::vector<float> const from = values(700, workers.rank());
      std::vector<double> const exact = exact_mean(3, 700);
      std::vector<Value> x(700), y(700);
      for (std::size_t i = 0; i < 700; ++i) x[i] = Value(from[i]);
      std::vector<Value> const before = x;
      mean(x, y, 0);
      EXPECT_EQ(0, std::memcmp(x.data(), before.data(), 700 * sizeof(Value)));
      for (std::size_t i = 0; i < 700; ++i)
        ASSERT_NEAR(static_cast<double>(static_cast<float>(y[i])), exact[i], 4.0 / 63 + 0.05);
    };
    run(float{});
    run(double{});
    run(gq::float16{});
    run(gq::bfloat16{});
  });
}

TEST(HierarchicalMean, errors_reach_every_worker_and_leave_the_vector_alone) {
  std::vector<std::string> texts(5);
  on_threads(5, [&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    std::vector<int> const nodes{2, 2, 1};
    gq::hierarchical_mean mean{
        workers, operators()[0], gq::schedule::ring{}, nodes, {.non_finite = gq::non_finite::error}};
    // a member of the second node brings infinity: only the leaders' call sees it
    std::vector<float> x = values(500, workers.rank());
    if (workers.rank() == 3) x[7] = std::numeric_limits<float>::infinity();
    std::vector<float> const before = x;
    try {
      mean(x, 0);
    } catch (gq::non_finite_error const& e) {
      texts[rank] = e.what();
    }
    EXPECT_EQ(x, before);
    // a worker with another length, in any node
    std::vector<float> y(workers.rank() == 4 ? 10 : 11);
    EXPECT_THROW(mean(y, 1), gq::disagreement_error);
    mean(x = values(500, workers.rank()), 2);
    gq::hierarchical_mean gentle{workers, operators()[0], gq::schedule::ring{}, nodes};
    x = before;
    gentle(x, 3);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[499]));
  });
  for (std::string const& text : texts) EXPECT_THAT(text, testing::HasSubstr("brought NaN or infinity"));
}

TEST(HierarchicalMean, levels_that_change_are_agreed_by_members_too) {
  on_threads(4, [](auto& workers) {
    gq::levels::table const early{0, 0.25, 1}, late{0, 0.5, 1};
    auto const with = [](gq::levels::table const& levels) -> gq::any_quantizer {
      return gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::packed<3>{}};
    };
    // one was made with the new levels, the others are told; a member is late once
    gq::hierarchical_mean mean{workers, with(workers.rank() == 1 ? late : early), gq::schedule::sra{}, 2};
    if (workers.rank() != 1 && workers.rank() != 3) mean.set_levels(late);
    std::vector<float> x = values(300, workers.rank());
    EXPECT_THROW(mean(x, 0), gq::disagreement_error);
    if (workers.rank() == 3) mean.set_levels(late);
    gq::hierarchical_mean fresh{workers, with(late), gq::schedule::sra{}, 2};
    std::vector<float> y = x;
    mean(x, 1);
    fresh(y, 1);
    EXPECT_EQ(x, y);
  });
}

TEST(HierarchicalMean, what_does_not_fit_is_refused_on_every_worker) {
  on_threads(4, [](auto& workers) {
    auto const refusal = [&](auto const& nodes, gq::any_quantizer const& op) -> std::string {
      try {
        gq::hierarchical_mean mean{workers, op, gq::schedule::ring{}, nodes};
      } catch (gq::configuration_error const& e) {
        return e.what();
      }
      return {};
    };
    EXPECT_THAT(refusal(0, operators()[0]), testing::HasSubstr("nodes of 0 workers"));
    EXPECT_THAT(refusal(std::vector<int>{3, 2}, operators()[0]),
                testing::HasSubstr("nodes of 5 workers together, and there are 4"));
    gq::any_quantizer const many = gq::quantizer{gq::norm::linf{}, gq::levels::uniform{100},
                                                 gq::rounding::stochastic{}, gq::wire::int8{}};
    EXPECT_THAT(refusal(2, many), testing::HasSubstr("2 workers x 100 levels"));
    EXPECT_EQ(refusal(4, many), "") << "one node";
  });
}
