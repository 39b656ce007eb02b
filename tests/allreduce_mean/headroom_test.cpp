// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Sums of powers of two never pass the largest code: equal maxima never vanish (spec 6.2).

#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using support::composition;

namespace headroom_test {

TEST(Headroom, equal_maxima_never_vanish_on_one_to_sixteen_workers) {
  constexpr std::size_t d = 4096;
  constexpr int draws = 40;
  for (char const* schedule : {"ring", "tree", "sra", "hierarchical:3"})
    for (char const* wire : {"int8", "packed:8", "int16"})
      for (int n = 1; n <= 16; ++n) {
        gq::any_quantizer const op =
            support::make_operator({"linf", 0, "exponential:4", "stochastic", wire, "exponential", schedule});
        gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
        double sum = 0, square = 0;
        float least = 100;
        cluster.run([&](auto& workers) {
          gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 7}};
          std::vector<float> const x(d, -1.5F);
          std::vector<float> y(d);
          for (int k = 0; k < draws; ++k) {
            mean(x, y, static_cast<std::uint64_t>(k));
            if (workers.rank() != 0) continue;
            for (float v : y) {
              least = std::min(least, -v);
              sum += static_cast<double>(v);
              square += (static_cast<double>(v) + 1.5) * (static_cast<double>(v) + 1.5);
            }
          }
        });
        // n maxima sum to between n/2 and 2n of them, as a power of two
        EXPECT_GT(least, 0.0F) << schedule << ' ' << wire << ", n = " << n;
        double const count = static_cast<double>(d) * draws;
        // six standard errors, measured; words are nearly independent
        EXPECT_NEAR(sum / count, -1.5, 6 * std::sqrt(square / count / count) + 1e-6)
            << schedule << ' ' << wire << ", n = " << n;
      }
}

TEST(Headroom, the_plan_derives_it_from_the_height_and_refuses_what_cannot_hold_it) {
  auto const plan = [](char const* levels, char const* wire, char const* schedule, int n) {
    return gq::plan_for(
        support::make_operator({"linf", 0, levels, "stochastic", wire, "exponential", schedule}),
        gq::schedule::any{schedule}, n, 10);
  };
  for (int n = 1; n <= 40; ++n) {
    EXPECT_EQ(plan("exponential:3", "int8", "ring", n).headroom, static_cast<std::uint32_t>(n - 1));
    EXPECT_EQ(plan("exponential:3", "int8", "tree", n).headroom,
              static_cast<std::uint32_t>(std::ceil(std::log2(n) - 1e-9)));
    EXPECT_EQ(plan("exponential:3", "int8", "allgather", n).fits, true);
  }
  EXPECT_EQ(plan("exponential", "int8", "ring", 8).levels, 120U);     // 127 - 7
  EXPECT_EQ(plan("exponential", "packed:4", "tree", 16).levels, 3U);  // 7 - 4: the papers' example
  EXPECT_FALSE(plan("exponential:4", "packed:4", "tree", 16).fits);
  EXPECT_FALSE(plan("exponential", "packed:4", "ring", 8).fits);
  EXPECT_TRUE(plan("exponential:1", "packed:4", "ring", 7).fits);
}

TEST(Headroom, without_it_equal_maxima_vanish) {
  // the negative control: four codes of 1 (the largest magnitude, nothing kept free) on a chain
  int zeros = 0;
  constexpr int draws = 40'000;
  for (int k = 0; k < draws; ++k) {
    std::int8_t sum = 1;
    for (int w = 1; w < 4; ++w)
      sum = gq::reduce::exponential::add<std::int8_t>(
          sum, 1,
          static_cast<std::uint32_t>(
              support::mix(static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(w))));
    zeros += sum == 0 ? 1 : 0;
  }
  EXPECT_GT(zeros, draws / 16);  // 1 + 1 has exponent 0 already, and 0 means zero

  // with headroom h = 3 none does, and the mean is right: 4 ones are 4
  double total = 0;
  for (int k = 0; k < draws; ++k) {
    std::int8_t sum = 4;
    for (int w = 1; w < 4; ++w)
      sum = gq::reduce::exponential::add<std::int8_t>(
          sum, 4,
          static_cast<std::uint32_t>(
              support::mix(static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(w))));
    ASSERT_GT(sum, 0);
    total += std::exp2(4 - sum);
  }
  // 2, then 2 or 4 with mean 3, then mean 4: a deviation below 2
  EXPECT_NEAR(total / draws, 4.0, 6 * 2 / std::sqrt(static_cast<double>(draws)));
}

}  // namespace headroom_test
