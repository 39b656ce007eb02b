// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief After the first call with a length nothing is allocated, for every method and schedule.

#include "tests/support/allocations.hpp"
#include "tests/support/cases.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using support::composition;

namespace allocation_test {

template <class T, class Space>
void expect_none(composition const& c, gq::any_quantizer const& op, int n, std::size_t d,
                 std::uint64_t chunk) {
  std::size_t before = 0, after = 0;
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    Space const space;
    gq::allreduce_mean mean{
        workers, op, gq::schedule::any{c.schedule}, {.seed = 1, .chunk_values = chunk}, space};
    std::vector<T> x(d), y(d);
    for (std::size_t i = 0; i < d; ++i)
      x[i] = support::value_at<T>(support::input::normal, 1, workers.rank(), n, i, d);
    mean(x, y, 0);
    mean(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) before = support::allocations;
    gq::transport::barrier(workers);
    mean(x, y, 2);
    mean(x, 3);
    mean(std::span<T>(x).first(d / 2), 4);  // a shorter one fits into the same memory
    gq::transport::barrier(workers);
    if (workers.rank() == 0) after = support::allocations;
    gq::transport::barrier(workers);
  });
  EXPECT_EQ(after - before, 0U) << c.text() << ", n = " << n << ", d = " << d << ", chunks of " << chunk
                                << ", " << gq::name_of(gq::dtype_of<T>::value) << ", " << Space::name();
}

TEST(Allocation, the_counter_counts) {
  std::size_t const before = support::allocations;
  auto* volatile p = new int(3);
  delete p;
  EXPECT_EQ(support::allocations - before, 1U);
}

TEST(Allocation, nothing_is_allocated_after_the_first_call_with_a_length) {
  int cases = 0;
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "native", "hierarchical:2"})
    for (char const* norm : {"linf", "l:2,2", "local:2", "plain"})
      for (std::uint64_t bucket : {0U, 128U})
        for (char const* levels : {"uniform:7", "exponential:3", "table:0,0.1,0.4,1"})
          for (char const* reduce : {"sum", "exponential", "requantize", "auto"}) {
            composition const c{norm, bucket, levels, "stochastic", "int8", reduce, schedule};
            std::optional<gq::any_quantizer> op;
            if (c.norm == "plain") {
              if (bucket != 0 || c.levels != "uniform:7" || c.reduce != "auto") continue;
              op.emplace(gq::uncompressed{});
            } else {
              try {
                op.emplace(support::make_operator(c));
              } catch (gq::configuration_error const&) {
                continue;
              }
            }
            for (int n : {1, 3}) {
              if (!gq::plan_for(*op, gq::schedule::any{schedule}, n, 1).fits) continue;
              expect_none<float, Kokkos::Serial>(c, *op, n, 9000, 0);
              expect_none<double, Kokkos::DefaultHostExecutionSpace>(c, *op, n, 9000, 1000);
              cases += 2;
            }
          }
  RecordProperty("cases", cases);
  EXPECT_GT(cases, 100);
}

TEST(Allocation, shards_need_none_either_over_nodes_or_not) {
  gq::rounding::stochastic const dice;
  for (gq::any_quantizer const& op : std::vector<gq::any_quantizer>{
           gq::quantizer{gq::norm::l<2, 2>{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::int8{}},
           gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::int8{}}})
    for (int node_size : {1, 2, 5}) {
      std::size_t before = 0, after = 0;
      gq::transport::threads cluster{5, {.deadline = std::chrono::seconds{60}}};
      cluster.run([&](auto& workers) {
        gq::schedule::hierarchical<> const nodes{node_size};
        gq::options const settings{.seed = 1, .chunk_values = 1000};
        gq::reduce_scatter_mean mean{workers, op, nodes, settings, Kokkos::Serial()};
        gq::all_gather gather{workers, op, nodes, settings, Kokkos::Serial()};
        std::vector<float> x(9000, 1.0F);
        auto const both = [&](std::uint64_t step) {
          mean(x, step);
          gather(x, step);
        };
        both(0);
        both(1);
        gq::transport::barrier(workers);
        if (workers.rank() == 0) before = support::allocations;
        gq::transport::barrier(workers);
        both(2);
        both(3);
        gq::transport::barrier(workers);
        if (workers.rank() == 0) after = support::allocations;
        gq::transport::barrier(workers);
      });
      EXPECT_EQ(after - before, 0U) << op.facts().name << ", nodes of " << node_size;
    }
}

}  // namespace allocation_test
