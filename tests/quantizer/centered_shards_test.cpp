// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Shards around midpoints: gathered weights within half a gap of the range, the same bits everywhere; scattered
///        gradients with the bits of the mean; equal values, other types, nodes, errors.

#include "centered_shards.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/operator/operators.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gq = globalq;
using support::on_threads;
using support::values;

namespace centered_shards_test {

auto const plain_op = gq::operators::qsdp<8>(128);
gq::any_quantizer const op = gq::centered{plain_op};

/// Values of worker-independent weights far from zero: bucket b lies around 100 + b.
template <class Value>
std::vector<Value> weights(std::size_t d) {
  std::vector<Value> w = values<Value>(d, 3);
  for (std::size_t i = 0; i < d; ++i)
    w[i] = static_cast<Value>(static_cast<float>(w[i]) + 100.0F + static_cast<float>(i / 128));
  return w;
}

template <class T>
class CenteredShards : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(CenteredShards, value_types);

TYPED_TEST(CenteredShards, gathered_weights_are_within_a_gap_of_their_range_and_the_same_everywhere) {
  for (int n : {1, 2, 3, 5, 8})
    for (std::size_t d : {0, 1, 100, 128, 129, 256, 3000}) {
      std::vector<TypeParam> const w = weights<TypeParam>(d);
      std::vector<std::vector<TypeParam>> all(static_cast<std::size_t>(n));
      on_threads(n, [&](auto& workers) {
        gq::all_gather gather{workers, op, {.seed = 4}};
        gq::segment const own = gather.shard(d);
        // what others own is not read
        std::vector<TypeParam> mine(d, static_cast<TypeParam>(-7.0F)), out(d);
        std::copy_n(w.begin() + static_cast<std::ptrdiff_t>(own.first), own.count,
                    mine.begin() + static_cast<std::ptrdiff_t>(own.first));
        gather(std::span<TypeParam const>(w).subspan(own.first, own.count), out, 9);
        gather(mine, 9);
        support::expect_same(mine, out, "in place");
        all[static_cast<std::size_t>(workers.rank())] = out;
      });
      for (auto const& each : all) support::expect_same(each, all[0], "n = " + std::to_string(n));
      for (std::size_t i = 0; i < d; ++i) {
        // half the range is at most 4, levels are 127; the type rounds twice
        double const gap = 4.0 / 127, ulp = sizeof(TypeParam) == 2 ? 1.0 : 0x1p-15;
        ASSERT_NEAR(static_cast<double>(static_cast<float>(all[0][i])),
                    static_cast<double>(static_cast<float>(w[i])), gap + ulp)
            << i << " of " << d;
      }
    }
}

TEST(CenteredShardsBytes, gathering_adds_four_bytes_a_bucket_and_a_header) {
  for (std::size_t d : {100, 3000})
    on_threads(3, [&](auto& workers) {
      gq::all_gather plain{workers, gq::any_quantizer{plain_op}};
      gq::all_gather centered{workers, op};
      std::vector<float> x(d, 1.0F);
      x[0] = 2;
      std::uint64_t const before = workers.bytes_sent();
      plain(x, 0);
      std::uint64_t const without = workers.bytes_sent() - before;
      centered(x, 0);
      std::uint64_t const with = workers.bytes_sent() - before - without;
      gq::segment const own = centered.shard(d);
      std::uint64_t const buckets = (own.count + 127) / 128, padding = (16 - own.count % 16) % 16;
      EXPECT_EQ(with, without + (own.empty() ? 0 : 2 * (4 * buckets + 16 + padding)));
    });
}

TYPED_TEST(CenteredShards, a_bucket_of_equal_values_is_gathered_as_it_is) {
  on_threads(3, [&](auto& workers) {
    gq::all_gather gather{workers, op};
    std::vector<TypeParam> w(1000);
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = static_cast<TypeParam>(static_cast<float>(i / 128) + 0.5F);
    auto const before = w;
    gather(w, 0);
    support::expect_same(w, before, "equal values");
  });
}

TYPED_TEST(CenteredShards, scattered_shards_are_those_of_the_centered_mean) {
  // over allgather that mean has the bits of reduce_scatter_mean, and midpoints of two workers have one order
  for (std::size_t d : {0, 1, 300, 2000})
    on_threads(2, [&](auto& workers) {
      std::vector<TypeParam> x = weights<TypeParam>(d), whole(d);
      for (auto& v : x)
        v = static_cast<TypeParam>(static_cast<float>(v) * (1.0F + static_cast<float>(workers.rank())));
      gq::allreduce_mean mean{workers, op, gq::schedule::any{"allgather"}, {.seed = 4}};
      mean(x, whole, 5);
      gq::reduce_scatter_mean scatter{workers, op, {.seed = 4}};
      gq::segment const own = scatter.shard(d);
      std::vector<TypeParam> mine(own.count), in_place = x;
      scatter(x, mine, 5);
      scatter(in_place, 5);
      std::vector<TypeParam> const expected(
          whole.begin() + static_cast<std::ptrdiff_t>(own.first),
          whole.begin() + static_cast<std::ptrdiff_t>(own.first + own.count));
      support::expect_same(mine, expected, "d = " + std::to_string(d));
      std::copy_n(mine.begin(), own.count, x.begin() + static_cast<std::ptrdiff_t>(own.first));
      support::expect_same(in_place, x, "the other shards keep what they held");
    });
}

TEST(CenteredShardsRules, float64_weights_that_float32_cannot_tell_apart_are_told_apart) {
  on_threads(3, [](auto& workers) {
    gq::all_gather gather{workers, op};
    std::vector<double> w(700);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = 1e6 + 0x1p-20 * static_cast<double>(i % 128);
    auto const before = w;
    gather(w, 1);
    // a midpoint has 24 bits, so what is left is at most 2^-4 beside a range of 2^-13
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(w[i], before[i], 0x1p-3 / 127) << i;
  });
}

/// The mean of many draws is the weights, though midpoints are rounded.
TEST(CenteredShardsRules, gathering_is_unbiased) {
  constexpr int draws = 600;
  constexpr std::size_t d = 256;
  auto const w = weights<float>(d);
  on_threads(2, [&](auto& workers) {
    gq::all_gather gather{workers, op, {.seed = 8}};
    std::vector<double> sum(d, 0.0);
    for (std::uint64_t k = 0; k < draws; ++k) {
      auto x = w;
      gather(x, k);
      for (std::size_t i = 0; i < d; ++i) sum[i] += static_cast<double>(x[i]) - static_cast<double>(w[i]);
    }
    // a shift of the whole bucket: delta^2 / 12 a coordinate, dependent; 6 deviations of one bucket's average
    double const delta = 4.0 / 127, deviation = delta / std::sqrt(12.0 * draws);
    for (std::size_t i = 0; i < d; ++i) ASSERT_LE(std::abs(sum[i] / draws), 6 * deviation + 0x1p-17) << i;
  });
}

TEST(CenteredShardsRules, shards_are_those_of_the_centered_mean_for_any_operator_and_workers) {
  for (int n : {1, 2, 3, 5, 8})
    on_threads(n, [](auto& workers) {
      for (auto const& [any, gap] : centered_shards::operators())
        for (std::size_t d : {0, 1, 257, 3001}) {
          shards::expect_shards_of_the_mean(workers, any, centered_shards::far_from_zero(d, workers.rank()));
          centered_shards::expect_gathered_shards(workers, any, d, gap);
        }
    });
}

TEST(CenteredShardsRules, over_nodes_have_the_bits_of_no_nodes_where_sums_are_exact_and_else_their_bound) {
  for (int n : {1, 2, 3, 5, 8})
    on_threads(n, [](auto& workers) { centered_shards::expect_nodes_of_any_size(workers); });
}

TEST(CenteredShardsRules, levels_that_are_set_are_those_of_a_new_object) {
  gq::levels::table const even{0, 0.5, 1}, other{0, 0.2, 1};
  auto const with = [](gq::levels::table const& levels) {
    return gq::any_quantizer{gq::centered{gq::quantizer{gq::norm::local<gq::infinity>{128}, levels,
                                                        gq::rounding::stochastic{}, gq::wire::packed<3>{}}}};
  };
  on_threads(3, [&](auto& workers) {
    gq::all_gather gather{workers, with(even)}, new_gather{workers, with(other)};
    gq::reduce_scatter_mean scatter{workers, with(even)}, new_scatter{workers, with(other)};
    gather.set_levels(other);
    scatter.set_levels(other);
    auto a = weights<float>(1000), b = a, c = a, d = a;
    gather(a, 1);
    new_gather(b, 1);
    support::expect_same(a, b, "gathered");
    scatter(c, 1);
    new_scatter(d, 1);
    support::expect_same(c, d, "scattered");
  });
}

TEST(CenteredShardsRules, nan_reaches_all_or_is_an_error_on_all) {
  for (bool throws : {false, true})
    on_threads(3, [&](auto& workers) {
      gq::options const how{.non_finite = throws ? gq::non_finite::error : gq::non_finite::propagate};
      gq::all_gather gather{workers, op, how};
      gq::reduce_scatter_mean scatter{workers, op, how};
      std::vector<float> x = values(1000, 1), w = x;
      gq::segment const own = gather.shard(x.size());
      if (workers.rank() == 1) x[own.first + 5] = w[7] = std::numeric_limits<float>::quiet_NaN();
      if (throws) {
        EXPECT_THROW(gather(x, 0), gq::non_finite_error);
        EXPECT_THROW(scatter(w, 1), gq::non_finite_error);
      } else {
        gather(x, 0);
        for (float v : x) ASSERT_TRUE(std::isnan(v));
        scatter(w, 1);
        for (std::uint64_t i = own.first; i < own.first + own.count; ++i) ASSERT_TRUE(std::isnan(w[i]));
      }
    });
}

TEST(CenteredShardsRules, disagreement_is_an_error_on_all_and_a_wrong_shard_on_its_owner) {
  auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
    gq::all_gather gather{
        workers, gq::any_quantizer{gq::centered{gq::operators::qsdp<8>(workers.rank() == 1 ? 128 : 64)}}};
    std::vector<float> x = values(1000, 1);
    gather(x, 0);
  });
  for (auto const& text : texts)
    EXPECT_THAT(text, testing::HasSubstr("rank 1 differs from rank 0 in the operator"));
  on_threads(2, [&](auto& workers) {
    gq::all_gather gather{workers, op};
    gq::reduce_scatter_mean scatter{workers, op};
    std::vector<float> x(1000), mine(3);
    EXPECT_THROW(gather(mine, x, 0), gq::configuration_error);
    EXPECT_THROW(scatter(x, mine, 0), gq::configuration_error);
    EXPECT_EQ(gather.shard(1000, 1).first, scatter.shard(1000, 1).first);
  });
}

}  // namespace centered_shards_test
