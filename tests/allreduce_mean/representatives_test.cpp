// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One composition for each policy over every schedule: small enough for the sanitizers.

#include "tests/support/calls.hpp"

#include <globalq/globalq.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

namespace gq = globalq;

namespace representatives_test {

std::vector<gq::any_quantizer> representatives() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::uniform{5}, gq::rounding::random_shift<>{},
                    gq::wire::packed<5>{}},
      gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::exponential<>{}, dice, gq::wire::int16{}},
      gq::quantizer{gq::norm::local<3>{.bucket = 512}, gq::levels::symmetric{0.25, 0.5, 1}, dice,
                    gq::wire::packed<3>{}},
      gq::quantizer{gq::norm::l<1, gq::infinity>{}, gq::levels::table{0, 0.1, 1}, gq::rounding::nearest{},
                    gq::wire::int32{}},
      gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::uniform<1>{},
                    gq::rounding::random_shift<false>{}, gq::wire::packed<2>{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 300}, gq::levels::uniform{3}, dice, gq::wire::elias<>{}},
      gq::quantizer{gq::norm::linf{}, gq::levels::exponential<7>{}, dice, gq::wire::huffman<>{}},
      gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{90}, gq::rounding::random_shift<>{},
                    gq::wire::sparse<std::int16_t>{}},
      gq::uncompressed{},
      gq::floats<gq::bfloat16>{},
  };
}

/// Averages pseudo-random vectors of n workers; returns the results' bits.
template <class Value>
std::vector<std::vector<Value>> averages(gq::any_quantizer const& op, char const* schedule, int n,
                                         std::size_t d, std::uint64_t chunk) {
  std::vector<std::vector<Value>> results(static_cast<std::size_t>(n));
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    std::mt19937 draw(static_cast<std::uint32_t>(workers.rank()) + 1);
    std::vector<Value> x(d + 1);
    for (Value& v : x)
      v = static_cast<Value>(static_cast<float>(static_cast<int>(draw() % 2001) - 1000) * 0x1p-9F);
    std::span<Value> const unaligned = std::span(x).subspan(1);
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 3, .chunk_values = chunk}};
    mean(unaligned, 0);
    mean(unaligned, 1);
    results[static_cast<std::size_t>(workers.rank())].assign(unaligned.begin(), unaligned.end());
  });
  return results;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(Representatives, all_workers_hold_the_same_bits_on_every_schedule) {
  int cases = 0, refused = 0;
  for (gq::any_quantizer const& op : representatives())
    for (char const* schedule : {"ring", "tree", "sra", "allgather", "native", "hierarchical:2"})
      for (int n : {1, 2, 3, 5})
        for (std::size_t d : {0U, 1U, 257U, 1300U}) {
          if (!gq::plan_for(op, gq::schedule::any{schedule}, n, d).fits) {
            ++refused;
            continue;
          }
          auto const whole = averages<float>(op, schedule, n, d, 0);
          for (auto const& r : whole) ASSERT_TRUE(same_bits(r, whole[0]));
          auto const chunked = averages<float>(op, schedule, n, d, 256);
          ASSERT_TRUE(same_bits(chunked[0], whole[0])) << op.facts().name;
          ++cases;
        }
  EXPECT_GT(cases, 400);
  EXPECT_GT(refused, 50) << "native takes sums of integers only";
}

TEST(Representatives, take_every_type_of_values) {
  for (gq::any_quantizer const& op : representatives())
    for (char const* schedule : {"ring", "sra", "hierarchical:2"}) {
      if (!gq::plan_for(op, gq::schedule::any{schedule}, 3, 1000).fits) continue;
      auto const f64 = averages<double>(op, schedule, 3, 1000, 0);
      EXPECT_EQ(f64[0], f64[2]);
      auto const f16 = averages<gq::float16>(op, schedule, 3, 1000, 0);
      auto const bf16 = averages<gq::bfloat16>(op, schedule, 3, 1000, 0);
      for (std::size_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(f16[0][i].bits, f16[2][i].bits);
        ASSERT_EQ(bf16[0][i].bits, bf16[2][i].bits);
      }
    }
}

}  // namespace representatives_test
