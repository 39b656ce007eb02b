// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief schedule::float32_sum: plain sums inside nodes and an operator between them: any split, the same bits, unbiased,
///        of values near the largest, of every type, groups, plans; errors on all.

#include "tests/support/calls.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace gq = globalq;
using support::on_threads;
using support::values;

namespace {

std::vector<gq::any_quantizer> operators_in_nodes() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::exponential<5>{}, dice, gq::wire::int8{}},
      gq::uncompressed{},
      gq::floats<gq::float16>{},
  };
}

std::vector<std::vector<int>> splits(int n) {
  std::vector<std::vector<int>> all = support::splits(n);
  if (n >= 3) all.push_back({1, n - 2, 1});
  if (n == 8) all.push_back({4, 4});
  return all;
}

using nodes_of_sums = gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::any>;

template <class Nodes>
nodes_of_sums sums_in(Nodes const& nodes, char const* between = "ring") {
  return nodes_of_sums{nodes, gq::schedule::any{between}};
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

TEST(Float32Sum, has_the_same_bits_on_all_workers_for_every_split) {
  for (gq::any_quantizer const& op : operators_in_nodes())
    for (char const* schedule : {"ring", "sra", "allgather"})
      for (int n : {1, 2, 3, 5, 8})
        for (auto const& nodes : splits(n))
          for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{1300}}) {
            std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
            std::atomic<int> as_planned = 0;
            on_threads(n, [&](auto& workers) {
              auto const r = static_cast<std::size_t>(workers.rank());
              gq::allreduce_mean mean{workers, op, sums_in(nodes, schedule), {.seed = 5}};
              std::uint64_t const before = workers.bytes_sent();
              results[r] = values(d, workers.rank());
              mean(results[r], 1);
              std::uint64_t const sent = workers.bytes_sent() - before;
              EXPECT_LE(sent, mean.plan(d).bytes_sent) << op.facts().name << ' ' << schedule << ' ' << d;
              if (sent == mean.plan(d).bytes_sent) ++as_planned;
            });
            EXPECT_GT(as_planned, 0) << "no worker sent what the plan says";
            std::vector<double> const exact = exact_mean(n, d);
            for (auto const& r : results) {
              ASSERT_TRUE(d == 0 || std::memcmp(r.data(), results[0].data(), d * sizeof(float)) == 0);
              if (op.facts().rounds()) continue;
              for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(static_cast<double>(r[i]), exact[i], 4e-6);
            }
          }
}

TEST(Float32Sum, of_nodes_of_one_is_the_mean_of_allreduce_mean) {
  on_threads(4, [](auto& workers) {
    gq::any_quantizer const op = operators_in_nodes()[0];
    gq::allreduce_mean mean{workers, op, sums_in(1), {.seed = 5}};
    gq::allreduce_mean flat{workers, op, gq::schedule::any{"ring"}, {.seed = 5}};
    std::vector<float> x = values(3000, workers.rank()), y = x;
    mean(x, 7);
    flat(y, 7);
    EXPECT_EQ(0, std::memcmp(x.data(), y.data(), x.size() * sizeof(float)));
  });
}

/// With uneven nodes every worker still counts once. Pooled over coordinates as in tests/quantizer/vector_codec_test.cpp.
TEST(Float32Sum, is_unbiased_and_rounds_once_a_node) {
  constexpr std::size_t d = 600;
  constexpr int draws = 250, n = 5;
  std::vector<double> const exact = exact_mean(n, d);
  double variance[2] = {};
  int which = 0;
  for (std::vector<int> const& nodes : {std::vector<int>{3, 2}, std::vector<int>{1, 1, 1, 1, 1}}) {
    on_threads(n, [&](auto& workers) {
      gq::any_quantizer const op =
          gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<3>{},
                        gq::rounding::stochastic{}, gq::wire::packed<3>{}};
      gq::allreduce_mean mean{workers, op, sums_in(nodes, "allgather"), {.seed = 9}};
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

TEST(Float32Sum, takes_every_type_of_values) {
  on_threads(3, [](auto& workers) {
    auto const run = [&]<class Value>(Value) {
      gq::allreduce_mean mean{workers, operators_in_nodes()[0], sums_in(2)};
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

TEST(Float32Sum, errors_reach_every_worker_and_leave_the_vector_alone) {
  std::vector<std::string> texts(5);
  on_threads(5, [&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    std::vector<int> const nodes{2, 2, 1};
    gq::allreduce_mean mean{
        workers, operators_in_nodes()[0], sums_in(nodes), {.non_finite = gq::non_finite::error}};
    // a member of the second node brings infinity
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
    gq::allreduce_mean gentle{workers, operators_in_nodes()[0], sums_in(nodes)};
    x = before;
    gentle(x, 3);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[499]));
  });
  for (std::string const& text : texts) EXPECT_THAT(text, testing::HasSubstr("contains NaN or infinity"));
}

TEST(Float32Sum, levels_that_change_are_agreed_by_members_too) {
  on_threads(4, [](auto& workers) {
    gq::levels::table const early{0, 0.25, 1}, late{0, 0.5, 1};
    auto const with = [](gq::levels::table const& levels) -> gq::any_quantizer {
      return gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::packed<3>{}};
    };
    // one was made with the new levels, the others are told; a member is late once
    gq::allreduce_mean mean{workers, with(workers.rank() == 1 ? late : early), sums_in(2, "sra")};
    if (workers.rank() != 1 && workers.rank() != 3) mean.set_levels(late);
    std::vector<float> x = values(300, workers.rank());
    EXPECT_THROW(mean(x, 0), gq::disagreement_error);
    if (workers.rank() == 3) mean.set_levels(late);
    gq::allreduce_mean fresh{workers, with(late), sums_in(2, "sra")};
    std::vector<float> y = x;
    mean(x, 1);
    fresh(y, 1);
    EXPECT_EQ(x, y);
  });
}

TEST(Float32Sum, what_does_not_fit_is_refused_on_every_worker) {
  on_threads(4, [](auto& workers) {
    auto const refusal = [&](auto const& nodes, gq::any_quantizer const& op) -> std::string {
      try {
        gq::allreduce_mean mean{workers, op, sums_in(nodes)};
      } catch (gq::configuration_error const& e) {
        return e.what();
      }
      return {};
    };
    EXPECT_THAT(refusal(0, operators_in_nodes()[0]), testing::HasSubstr("0 workers of a node"));
    EXPECT_THAT(refusal(std::vector<int>{3, 2}, operators_in_nodes()[0]),
                testing::HasSubstr("nodes of 3+2 workers, and there are 4"));
    gq::any_quantizer const many = gq::quantizer{gq::norm::linf{}, gq::levels::uniform{100},
                                                 gq::rounding::stochastic{}, gq::wire::int8{}};
    EXPECT_THAT(refusal(2, many), testing::HasSubstr("2 nodes x 100 levels"));
    EXPECT_EQ(refusal(4, many), "") << "one node";
  });
}

/// 2.3e38 on 3 + 1 workers was NaN once: a node's mean counts for three halves of what it is there.
TEST(Float32Sum, values_near_the_largest_of_their_type_are_averaged) {
  auto const run = []<class Value>(Value most) {
    for (Value value : {most, most / 3 * 2})
      for (gq::any_quantizer const& op : operators_in_nodes()) {
        if (op.facts().local || op.facts().binary) continue;  // rounding up goes beyond the largest number
        for (auto const& nodes : {std::vector<int>{3, 1}, std::vector<int>{1, 3}, std::vector<int>{2, 2}})
          on_threads(4, [&](auto& workers) {
            gq::allreduce_mean mean{workers, op, sums_in(nodes), {.seed = 5}};
            std::vector<Value> x(300, workers.rank() == 3 ? value / 2 : value);
            mean(x, 1);
            for (Value v : x) {
              ASSERT_TRUE(std::isfinite(v)) << op.facts().name << ' ' << support::text(nodes);
              // 7/8 of the value, within twice the widest gap: a half
              ASSERT_NEAR(v / value, Value{7} / 8, 0.5) << op.facts().name << ' ' << support::text(nodes);
            }
          });
      }
  };
  run(std::numeric_limits<float>::max());
  run(std::numeric_limits<double>::max());
}

/// Every value, of any size, is computed in the exact environment: one worker that rounds upwards and one that flushes
/// subnormals to zero gave other bits once.
TEST(Float32Sum, rounding_modes_of_the_caller_change_no_bit) {
  for (float scale : {1.0F, 0x1p-130F}) {
    std::vector<std::vector<float>> results[2];
    for (int odd : {0, 1}) {
      results[odd].resize(4);
      on_threads(4, [&](auto& workers) {
        gq::allreduce_mean mean{
            workers, operators_in_nodes()[1], sums_in(std::vector<int>{3, 1}), {.seed = 5}};
        std::vector<float> x = values(700, workers.rank());
        for (float& v : x) v *= scale;
        if (odd == 1 && workers.rank() == 1) std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
        if (odd == 1 && workers.rank() != 1) _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
        mean(x, 1);
        EXPECT_EQ(std::fegetround(), odd == 1 && workers.rank() == 1 ? FE_UPWARD : FE_TONEAREST);
        std::fesetround(FE_TONEAREST);
#if defined(__SSE2__)
        _mm_setcsr(_mm_getcsr() & ~0x8040U);
#endif
        results[odd][static_cast<std::size_t>(workers.rank())] = x;
      });
    }
    for (auto const& each : results[1])
      EXPECT_EQ(0, std::memcmp(each.data(), results[0][0].data(), each.size() * sizeof(float)));
  }
}

TEST(Float32Sum, groups_and_centered_operators_go_through_it) {
  on_threads(5, [](auto& workers) {
    gq::any_quantizer const op = operators_in_nodes()[1];
    auto const nodes = sums_in(std::vector<int>{3, 2}, "allgather");
    gq::allreduce_mean mean{workers, op, nodes, {.seed = 5}};
    std::vector<float> a = values(700, workers.rank()), a2 = a;
    std::vector<double> b(300, 1.0 + workers.rank()), b2 = b;
    mean(gq::vector_group{}.add(a).add(b), 4);
    mean(a2, 4);
    mean(b2, 5);
    EXPECT_EQ(a, a2);
    EXPECT_EQ(b, b2);
    gq::allreduce_mean centered{workers, gq::any_quantizer{gq::centered{op}}, nodes, {.seed = 5}};
    std::vector<float> far(300, 1000.0F + static_cast<float>(workers.rank()));
    far[7] += 1;
    auto const exact = 1000.0 + 2.0;
    centered(far, 6);
    for (std::size_t i = 0; i < far.size(); ++i)  // buckets of equal values are exact
      EXPECT_NEAR(static_cast<double>(far[i]), exact + (i == 7 ? 1 : 0), i < 128 ? 1.0 : 1e-3) << i;
  });
}

/// Nodes that are alike are each a worker: their plan is that of as many workers, but for the sums inside.
TEST(Float32Sum, a_plan_counts_nodes) {
  gq::any_quantizer const op =
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
  gq::plan const flat = gq::plan_for(op, gq::schedule::any{"ring"}, 4, 100'000),
                 sums = gq::plan_for(op, sums_in(8), 32, 100'000),
                 uneven = gq::plan_for(op, sums_in(std::vector<int>{3, 1}), 4, 100'000);
  EXPECT_EQ(sums.levels, flat.levels);
  EXPECT_EQ(sums.rounding_steps, 1);
  EXPECT_DOUBLE_EQ(sums.theta, flat.theta) << "n theta is that of nodes times the workers of one";
  EXPECT_DOUBLE_EQ(uneven.theta, 1.5 * gq::plan_for(op, gq::schedule::any{"ring"}, 2, 100'000).theta);
}
