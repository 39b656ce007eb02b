// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Chunks in flight: whatever their number, every schedule ends, and gives the bits of whole segments.

#include "tests/support/calls.hpp"

#include <globalq/globalq.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace gq = globalq;

namespace {

std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::local<2>{.bucket = 64}, gq::levels::uniform<7>{}, dice, gq::wire::elias<>{}},
      gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 64}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::uncompressed{},
      gq::floats<gq::bfloat16>{},
  };
}

/// The mean of n vectors of d values, in place, as every worker got it.
std::vector<std::vector<float>> means(gq::any_quantizer const& op, char const* schedule, int n, std::size_t d,
                                      std::uint64_t chunk) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
  // a send ends when its receiver has taken it: the hardest case for a schedule
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    std::uint32_t state = static_cast<std::uint32_t>(workers.rank()) + 1;
    std::vector<float> x(d);
    for (float& v : x) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<float>(static_cast<int>(state >> 20) - 2048) * 0x1p-9F;
    }
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 3, .chunk_values = chunk}};
    mean(x, 0);
    results[static_cast<std::size_t>(workers.rank())] = x;
  });
  return results;
}

}  // namespace

TEST(Chunks, any_number_of_them_gives_the_bits_of_whole_segments) {
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:1", "hierarchical:3"})
    for (int n = 1; n <= 9; ++n)
      for (gq::any_quantizer const& op : operators()) {
        if (!gq::plan_for(op, gq::schedule::any{schedule}, n, 1000).fits) continue;
        // of the segments of a vector some have 1, 2, .. 40 chunks of 256 values, the last one short
        for (std::size_t chunks : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 13U, 40U}) {
          std::size_t const d = 256 * chunks * static_cast<std::size_t>(n) - 100;
          auto const whole = means(op, schedule, n, d, d), cut = means(op, schedule, n, d, 256);
          for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r) {
            ASSERT_EQ(0, std::memcmp(whole[r].data(), whole[0].data(), d * sizeof(float)));
            ASSERT_EQ(0, std::memcmp(whole[r].data(), cut[r].data(), d * sizeof(float)))
                << op.facts().name << " over " << schedule << ", n = " << n << ", chunks = " << chunks
                << ", rank " << r;
          }
        }
      }
}

/// Segments of unequal length: trailing ones have fewer chunks, or none.
TEST(Chunks, segments_may_have_different_numbers_of_them) {
  for (char const* schedule : {"ring", "sra", "hierarchical:2"})
    for (int n = 2; n <= 9; ++n)
      for (gq::any_quantizer const& op : operators()) {
        if (!gq::plan_for(op, gq::schedule::any{schedule}, n, 1000).fits) continue;
        for (std::size_t d :
             {std::size_t{1}, std::size_t{257}, std::size_t{256} * 11 + 3, std::size_t{256} * 30}) {
          auto const whole = means(op, schedule, n, d, d), cut = means(op, schedule, n, d, 256);
          for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r)
            ASSERT_EQ(0, std::memcmp(whole[r].data(), cut[r].data(), d * sizeof(float)))
                << op.facts().name << " over " << schedule << ", n = " << n << ", d = " << d;
        }
      }
}
