// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Levels learned in a training loop: all workers change at the same step, and the variance becomes what Psi says.

#include "tests/support/calls.hpp"

#include <globalq/globalq.hpp>
#include <globalq/train/learn/level_learner.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gq = globalq;

namespace {

constexpr std::size_t length = 4096, bucket = 512;
constexpr int workers_count = 3, draws = 150;

/// Many small values and a few large ones: the fifth power of an even distribution.
std::vector<float> gradient(int rank) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) + 7);
  std::vector<float> x(length);
  for (float& v : x) {
    double const wide = (static_cast<int>(draw() % 4097) - 2048) * 0x1p-11;
    v = static_cast<float>(wide * wide * wide * wide * wide);
  }
  return x;
}

/// E||mean - exact||^2 measured over calls of one levels' life.
template <class Mean>
double measured(Mean& mean, std::vector<float> const& x, std::vector<double> const& exact,
                std::uint64_t first) {
  double sum = 0;
  for (int k = 0; k < draws; ++k) {
    std::vector<float> y = x;
    mean(y, first + static_cast<std::uint64_t>(k));
    for (std::size_t i = 0; i < length; ++i) {
      double const e = static_cast<double>(y[i]) - exact[i];
      sum += e * e;
    }
  }
  return sum / draws;
}

}  // namespace

TEST(LearnedLevels, change_a_call_s_variance_to_what_their_distribution_says) {
  std::vector<double> exact(length);
  double weight = 0;  // of all values of all workers: squared scales
  for (int r = 0; r < workers_count; ++r) {
    std::vector<float> const x = gradient(r);
    for (std::size_t i = 0; i < length; ++i) exact[i] += static_cast<double>(x[i]) / workers_count;
  }
  for (std::size_t b = 0; b < length; b += bucket) {
    double top = 0;
    for (int r = 0; r < workers_count; ++r) {
      std::vector<float> const x = gradient(r);
      for (std::size_t i = b; i < b + bucket; ++i) top = std::max(top, std::fabs(static_cast<double>(x[i])));
    }
    weight += top * top * static_cast<double>(bucket * workers_count);
  }

  gq::transport::threads cluster{workers_count, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    gq::norm::linf const norm{.bucket = bucket};
    gq::allreduce_mean mean{workers,
                            gq::quantizer{norm, gq::levels::table{0, 0.25, 0.5, 0.75, 1},
                                          gq::rounding::stochastic{}, gq::wire::packed<4>{}},
                            gq::schedule::allgather{},
                            {.seed = 3},
                            Kokkos::Serial()};
    gq::learn::level_learner learner{
        norm, gq::learn::optimal{.size = 4}, {.schedule = {.once = {5}, .every = 0}}};
    std::vector<float> const x = gradient(workers.rank());
    double const before = measured(mean, x, exact, 0);
    double predicted = 0;
    int updates = 0;
    for (std::uint64_t step = 0; step < 10; ++step)
      if (auto const found = learner.update(workers, x, step)) {
        EXPECT_EQ(step, 5U);
        ++updates;
        mean.set_levels(found->levels.table());
        // n independent encodings, each of variance scale^2 Psi a value, divided by n^2
        predicted = weight * found->variance / (workers_count * workers_count);
      }
    EXPECT_EQ(updates, 1);
    double const after = measured(mean, x, exact, 1000);
    EXPECT_LT(after, before * 0.9);
    // 600,000 values: the sum of squares is known to well below 1 %; bins are 1 % wide
    EXPECT_NEAR(after / predicted, 1.0, 0.03);
  });
}

/// Levels of rotated values are those of the rotated vector.
TEST(LearnedLevels, of_rotated_values_are_learned_behind_the_rotation) {
  std::vector<double> exact(length);
  for (int r = 0; r < workers_count; ++r) {
    std::vector<float> const x = gradient(r);
    for (std::size_t i = 0; i < length; ++i) exact[i] += static_cast<double>(x[i]) / workers_count;
  }
  gq::transport::threads cluster{workers_count, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    gq::norm::linf const norm{.bucket = bucket};
    gq::rotated const op{gq::quantizer{norm, gq::levels::table{0, 0.25, 0.5, 0.75, 1},
                                       gq::rounding::stochastic{}, gq::wire::packed<4>{}},
                         bucket};
    gq::learn::learner_options const at{.schedule = {.once = {5}, .every = 0}};
    gq::learn::learner_options behind = at;
    behind.stages = op.facts().chain;
    gq::learn::level_learner learner{norm, gq::learn::optimal{.size = 4}, behind},
        by_hand{norm, gq::learn::optimal{.size = 4}, at};
    std::vector<float> const x = gradient(workers.rank());
    std::vector<float> y = x;
    gq::kernel::host_executor const on{Kokkos::Serial()};
    gq::detail::enter(op.facts().chain,
                      {on, length, 0, 5, workers.rank(), gq::detail::largest_mapped(gq::dtype::float32),
                       gq::dtype::float32},
                      {x.data(), gq::dtype::float32}, {0, length}, {y.data(), gq::dtype::float32});
    auto const found = learner.update(workers, x, 5), same = by_hand.update(workers, y, 5);
    ASSERT_TRUE(found && same);
    EXPECT_EQ(found->levels.values, same->levels.values);
    gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 3}, Kokkos::Serial()};
    double const even = measured(mean, x, exact, 0);
    mean.set_levels(found->levels.table());
    EXPECT_LT(measured(mean, x, exact, 1000), 0.7 * even);  // 0.61
  });
}
