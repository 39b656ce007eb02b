// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Nodes of workers: the same bits on all of them, whatever the nodes; what is sent; and what is refused.

#include "tests/support/calls.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/refusal.hpp"

#include <globalq/globalq.hpp>
#include <globalq/schedule/hierarchical.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace gq = globalq;
using gq::schedule::hierarchical;
using gq::schedule::scatter_reduce_allgather;
using gq::schedule::star;
using support::refusal;
using support::splits;
using support::text;
using ::testing::HasSubstr;

namespace {

std::vector<gq::any_quantizer> operators_of_nodes() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 64}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::uncompressed{},
  };
}

float value_of(int rank, std::size_t i) {
  std::uint32_t state =
      static_cast<std::uint32_t>(rank) * 747796405U + static_cast<std::uint32_t>(i) * 2891336453U + 1U;
  state = ((state >> ((state >> 28U) + 4U)) ^ state) * 277803737U;
  return static_cast<float>(static_cast<int>(state >> 20) - 2048) * 0x1p-9F;
}

/// The mean of n vectors of d values as every worker got it, by a transport whose sends always wait.
template <class S>
std::vector<std::vector<float>> means(gq::any_quantizer const& op, S const& schedule, int n, std::size_t d,
                                      std::uint64_t chunk, gq::options settings = {.seed = 3}) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
  settings.chunk_values = chunk;
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    std::vector<float> x(d);
    for (std::size_t i = 0; i < d; ++i) x[i] = value_of(workers.rank(), i);
    gq::allreduce_mean mean{workers, op, schedule, settings};
    mean(x, 0);
    results[static_cast<std::size_t>(workers.rank())] = x;
  });
  return results;
}

template <class Pair>
class HierarchicalOver : public ::testing::Test {};

template <class Inner, class Outer>
struct pair {
  using schedule = hierarchical<Inner, Outer>;
};
using pairs = ::testing::Types<pair<star, scatter_reduce_allgather>, pair<star, gq::schedule::ring>,
                               pair<star, gq::schedule::tree>, pair<gq::schedule::tree, gq::schedule::tree>>;
TYPED_TEST_SUITE(HierarchicalOver, pairs);

TYPED_TEST(HierarchicalOver, any_nodes_and_chunks_gives_every_worker_the_same_bits) {
  int cases = 0;
  for (int n : {1, 2, 3, 4, 6, 9})
    for (std::vector<int> const& split : splits(n)) {
      typename TypeParam::schedule const schedule{split};
      for (gq::any_quantizer const& op : operators_of_nodes())
        // of the segments some are empty, some shorter than others
        for (std::size_t d : {std::size_t{1}, std::size_t{300}, std::size_t{256} * 13 - 100}) {
          auto const whole = means(op, schedule, n, d, 0);
          auto const cut = means(op, schedule, n, d, 256);
          for (std::size_t r = 0; r < whole.size(); ++r) {
            ASSERT_EQ(whole[r], whole[0]) << op.facts().name << ", nodes " << text(split) << ", rank " << r;
            ASSERT_EQ(cut[r], whole[0])
                << op.facts().name << ", nodes " << text(split) << ", chunks, rank " << r;
          }
          ++cases;
        }
    }
  EXPECT_GT(cases, 200);
}

TYPED_TEST(HierarchicalOver, any_nodes_sums_everyone_once) {
  for (int n : {5, 8})
    for (std::vector<int> const& split : splits(n)) {
      std::size_t const d = 1000;
      auto const got = means(gq::uncompressed{}, typename TypeParam::schedule{split}, n, d, 256);
      for (std::size_t i = 0; i < d; ++i) {
        double sum = 0;
        for (int r = 0; r < n; ++r) sum += static_cast<double>(value_of(r, i));
        // inputs are multiples of 2^-9 below 4: sums are exact, and only dividing by n rounds
        ASSERT_NEAR(static_cast<double>(got[0][i]), sum / n, 4 * 0x1p-23) << text(split);
      }
    }
}

// Many nodes of few workers, many chunks: the frames of a tree between leaders and those within a node are others.
TYPED_TEST(HierarchicalOver, ten_and_more_nodes_sum_everyone_once_in_many_chunks) {
  std::size_t const d = 256 * 24;
  for (int nodes : {10, 11}) {
    int const n = 2 * nodes;
    auto const got = means(gq::uncompressed{}, typename TypeParam::schedule{2}, n, d, 256);
    for (std::size_t i = 0; i < d; ++i) {
      double sum = 0;
      for (int r = 0; r < n; ++r) sum += static_cast<double>(value_of(r, i));
      ASSERT_NEAR(static_cast<double>(got[0][i]), sum / n, 4 * 0x1p-23) << nodes << " nodes";
    }
    for (auto const& other : got) ASSERT_EQ(other, got[0]);
  }
}

// Integer sums are exact in any order, so nodes change nothing: the bits are those of a ring.
TYPED_TEST(HierarchicalOver, any_nodes_gives_the_bits_of_a_ring_where_sums_are_exact) {
  gq::any_quantizer const op = operators_of_nodes()[0];
  for (int n : {4, 7}) {
    auto const expected = means(op, gq::schedule::ring{}, n, 2000, 0);
    for (std::vector<int> const& split : splits(n))
      EXPECT_EQ(means(op, typename TypeParam::schedule{split}, n, 2000, 0)[0], expected[0]) << text(split);
  }
}

// The mean over many seeds, where sums are rounded again at every leader: unbiased, and within the plan's theta.
TYPED_TEST(HierarchicalOver, any_nodes_is_unbiased_with_at_most_the_planned_variance) {
  int const n = 6, seeds = 200;
  std::size_t const d = 256;
  typename TypeParam::schedule const schedule{std::vector<int>{1, 3, 2}};
  for (gq::any_quantizer const& op :
       {operators_of_nodes()[1],
        gq::any_quantizer(gq::quantizer{gq::norm::linf{}, gq::levels::uniform{3}, gq::rounding::stochastic{},
                                        gq::wire::packed<4>{}})}) {
    std::vector<double> exact(d, 0.0), sum(d, 0.0);
    double size = 0, variance = 0;
    for (int r = 0; r < n; ++r)
      for (std::size_t i = 0; i < d; ++i) {
        double const v = static_cast<double>(value_of(r, i));
        exact[i] += v / n;
        size += v * v;
      }
    for (int s = 0; s < seeds; ++s) {
      auto const got = means(op, schedule, n, d, 0, {.seed = static_cast<std::uint64_t>(s)});
      for (std::size_t i = 0; i < d; ++i) {
        double const error = static_cast<double>(got[0][i]) - exact[i];
        sum[i] += error;
        variance += error * error / seeds;
      }
    }
    // E||G - mean||^2 <= theta / n sum ||x_i||^2, see plan; measured over d * seeds draws, so far inside 1.1
    gq::plan const p = gq::plan_for(op, schedule, n, d);
    EXPECT_LT(variance, 1.1 * p.theta / n * size) << op.facts().name;
    EXPECT_GT(variance, 0.0);
    // the squared length of the mean error is that variance / seeds in expectation, with a relative deviation of at most
    // sqrt(2 / d) times the kurtosis' share: 2 is beyond six deviations
    double bias = 0;
    for (double e : sum) bias += e / seeds * e / seeds;
    EXPECT_LT(bias, 2 * variance / seeds) << op.facts().name;
  }
}

TEST(Hierarchical, sends_nothing_between_nodes_but_by_leaders) {
  for (int n : {6, 7}) {
    std::vector<std::uint64_t> sent(static_cast<std::size_t>(n));
    std::size_t const d = 256 * 64;
    gq::any_quantizer const op = operators_of_nodes()[0];
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
    hierarchical<> const schedule{3};
    cluster.run([&](auto& workers) {
      std::vector<float> x(d, 1.0F);
      gq::allreduce_mean mean{workers, op, schedule, {.seed = 3}};
      mean(x, 0);
      std::uint64_t const before = workers.bytes_sent();
      mean(x, 1);
      auto const bytes = workers.bytes_sent() - before;
      sent[static_cast<std::size_t>(workers.rank())] = bytes;
      if (workers.rank() == 0) {
        EXPECT_EQ(bytes, mean.plan(d).bytes_sent) << "leaders send the most";
      }
    });
    // a member sends its frames to the leader, one for each node's segment; the opening exchange is 64 bytes to every
    // other worker
    auto const opening = 64 * static_cast<std::uint64_t>(n - 1),
               header = std::uint64_t{sizeof(gq::wire::frame_header)};
    std::uint64_t const segments = n == 6 ? 2 : 3;
    EXPECT_EQ(sent[1], opening + d + segments * header);
    // a leader of two: half of its node's sum and half of the whole one to the other leader, and all of it to two members
    if (n == 6) {
      EXPECT_EQ(sent[0], opening + 3 * d + 6 * header);
    }
    // who is alone in a node leads it: two thirds of its values, and its third of the sum to two
    if (n == 7) {
      EXPECT_EQ(sent[6], opening + (22 + 21 + 2 * 21) * 256 + 4 * header);
    }
  }
}

TEST(Hierarchical, plans_roundings_and_headroom_by_nodes) {
  auto const exponential = operators_of_nodes()[1];
  // star of 4: 3 additions; sra between 4 leaders: 3
  gq::plan const p = gq::plan_for(exponential, hierarchical<>{4}, 16, 1 << 16);
  EXPECT_EQ(p.reduce, gq::method::exponential);
  EXPECT_EQ(p.headroom, 6U);
  // trees: 2 + 2
  using trees = hierarchical<gq::schedule::tree, gq::schedule::tree>;
  EXPECT_EQ(gq::plan_for(exponential, trees{4}, 16, 1 << 16).headroom, 4U);
  auto const again = gq::quantizer{gq::norm::local<2>{.bucket = 64}, gq::levels::uniform<>{},
                                   gq::rounding::stochastic{}, gq::wire::packed<4>{}};
  // own values, the node's sum, the sum of nodes
  EXPECT_EQ(gq::plan_for(again, hierarchical<>{4}, 16, 1 << 16).rounding_steps, 3);
  EXPECT_EQ(gq::plan_for(again, (hierarchical<star, gq::schedule::ring>{4}), 16, 1 << 16).rounding_steps, 5);
  EXPECT_EQ(gq::plan_for(again, hierarchical<>{16}, 16, 1 << 16).rounding_steps, 2);
  EXPECT_EQ(gq::plan_for(again, hierarchical<>{1}, 16, 1 << 16).rounding_steps, 2);
  // all additions bring every worker in once
  for (int n = 1; n <= 9; ++n)
    for (std::vector<int> const& split : splits(n)) {
      std::vector<int> in(static_cast<std::size_t>(n), 1);
      int additions = 0, root = 0;
      for (auto const& [into, from] : trees{split}.additions(n)) {
        in[static_cast<std::size_t>(into)] += std::exchange(in[static_cast<std::size_t>(from)], 0);
        root = into;
        ++additions;
      }
      EXPECT_EQ(additions, n - 1);
      EXPECT_EQ(in[static_cast<std::size_t>(root)], n) << text(split);
    }
}

TEST(Hierarchical, refuses_nodes_that_are_none) {
  EXPECT_THAT(refusal([] { hierarchical<>{0}; }), HasSubstr("0 workers of a node; use 1 or more"));
  EXPECT_THAT(refusal([] { hierarchical<>{std::vector<int>{}}; }), HasSubstr("no nodes"));
  EXPECT_THAT(refusal([] { hierarchical<>{std::vector<int>{2, 0}}; }), HasSubstr("a node of 0 workers"));
  for (std::vector<int> const& wrong : {std::vector<int>{2, 2}, {2, 3, 1}, {5, 1}})
    EXPECT_THAT(refusal([&] { static_cast<void>(hierarchical<>{wrong}.facts(5)); }),
                HasSubstr("and there are 5; give as many"));
  EXPECT_EQ(refusal([] { static_cast<void>(hierarchical<>{2}.facts(5)); }), "");
  EXPECT_THAT(refusal([] { static_cast<void>(hierarchical<star, gq::schedule::allgather>{2}.facts(4)); }),
              HasSubstr("between nodes frames must be added on the way, which schedule allgather does not"));
}

TEST(Hierarchical, workers_with_other_nodes_are_told_so) {
  gq::transport::threads cluster{4, {.deadline = std::chrono::seconds{20}}};
  std::vector<std::string> errors(4);
  cluster.run([&](auto& workers) {
    std::vector<float> x(10, 1.0F);
    gq::allreduce_mean mean{workers, operators_of_nodes()[0], hierarchical<>{workers.rank() == 2 ? 4 : 2}};
    try {
      mean(x, 0);
    } catch (gq::disagreement_error const& e) {
      errors[static_cast<std::size_t>(workers.rank())] = e.what();
    }
  });
  for (std::string const& e : errors) EXPECT_THAT(e, HasSubstr("schedule"));
}

}  // namespace
