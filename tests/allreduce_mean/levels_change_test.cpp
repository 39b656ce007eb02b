// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Levels that change between calls: as if the operator had been made with them, without an allocation, and by all.

#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace gq = globalq;
using support::same_bits;

namespace levels_change_test {

constexpr std::size_t length = 3000;
gq::levels::table const early{0, 0.25, 0.5, 1}, late{0, 0.0625, 0.375, 1};
gq::levels::symmetric const early_signed{0.25, 0.5, 1}, late_signed{0.0625, 0.375, 1};

std::vector<float> values(int rank) { return support::values(length, rank); }

template <class Levels, class Wire = gq::wire::packed<3>>
gq::any_quantizer with(Levels const& levels, Wire wire = {}) {
  return gq::quantizer{gq::norm::linf{.bucket = 512}, levels, gq::rounding::stochastic{}, wire};
}

/// The mean of a call by workers that were made with one table and given another.
template <class Before, class After, class Wire>
void expect_as_if_made_with(Before const& before, After const& after, Wire wire, char const* schedule) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    // one worker is made with the new levels, say after a restart: what counts is what holds now
    gq::allreduce_mean changed{workers,
                               workers.rank() == 1 ? with(after, wire) : with(before, wire),
                               gq::schedule::any{schedule},
                               {.seed = 5}};
    gq::allreduce_mean fresh{workers, with(after, wire), gq::schedule::any{schedule}, {.seed = 5}};
    std::vector<float> x = values(workers.rank()), y = x;
    if (workers.rank() != 1) changed.set_levels(after);
    changed(x, 9);
    fresh(y, 9);
    EXPECT_TRUE(same_bits(x, y)) << schedule;
    EXPECT_EQ(changed.plan(length).theta, fresh.plan(length).theta);
  });
}

TEST(LevelsChange, a_call_is_as_if_the_operator_had_been_made_with_the_new_levels) {
  for (char const* schedule : {"ring", "tree", "sra", "allgather"}) {
    expect_as_if_made_with(early, late, gq::wire::packed<3>{}, schedule);
    expect_as_if_made_with(early_signed, late_signed, gq::wire::packed<3>{}, schedule);
    expect_as_if_made_with(early, late, gq::wire::int16{}, schedule);
  }
  expect_as_if_made_with(early, late, gq::wire::huffman<>{}, "sra");
}

TEST(LevelsChange, a_worker_that_is_early_is_an_error_on_all_and_the_next_call_works) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    gq::allreduce_mean mean{workers, with(early), gq::schedule::sra{}};
    std::vector<float> x = values(workers.rank());
    std::vector<float> const before = x;
    if (workers.rank() == 2) mean.set_levels(late);
    try {
      mean(x, 0);
      ADD_FAILURE() << "rank " << workers.rank();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("rank 2 differs from rank 0 in the operator"));
    }
    EXPECT_TRUE(same_bits(x, before));
    if (workers.rank() != 2) mean.set_levels(late);
    mean(x, 1);
  });
}

TEST(LevelsChange, nothing_is_allocated) {
  std::array<std::size_t, 2> counts{};
  gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    gq::allreduce_mean mean{workers, with(early), gq::schedule::ring{}, {}, Kokkos::Serial()};
    std::vector<float> x = values(workers.rank());
    mean(x, 0);
    mean(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) counts[0] = support::allocations;
    gq::transport::barrier(workers);
    mean.set_levels(late);
    mean(x, 2);
    mean.set_levels(early);
    mean(x, 3);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) counts[1] = support::allocations;
    gq::transport::barrier(workers);
  });
  EXPECT_EQ(counts[0], counts[1]);
}

TEST(LevelsChange, other_numbers_and_kinds_are_refused_and_change_nothing) {
  auto const complaint = [](gq::any_quantizer const& op, auto const& levels) -> std::string {
    gq::vector_codec codec{op, Kokkos::Serial()};
    std::vector<float> const x = values(0);
    std::vector<std::byte> before(codec.frame_bytes(length)), after(before.size());
    codec.encode(x, {}, before);
    std::string text;
    try {
      codec.set_levels(levels);
    } catch (gq::configuration_error const& e) {
      text = e.what();
    }
    codec.encode(x, {}, after);
    EXPECT_EQ(before, after);
    return text;
  };
  EXPECT_THAT(complaint(with(early), gq::levels::table{0, 0.5, 1}),
              testing::HasSubstr("2 levels with zero cannot replace 3 with zero"));
  EXPECT_THAT(complaint(with(early), late_signed), testing::HasSubstr("3 levels without zero"));
  EXPECT_THAT(complaint(with(gq::levels::uniform{3}), late),
              testing::HasSubstr("levels of this operator are fixed"));
  EXPECT_THAT(complaint(gq::quantizer{gq::norm::linf{}, gq::levels::exponential{3},
                                      gq::rounding::stochastic{}, gq::wire::int8{}},
                        late),
              testing::HasSubstr("use levels::table"));
}

TEST(LevelsChange, streams_take_them_too) {
  gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    gq::transport::staged on_stream{workers, Kokkos::Serial()};
    gq::allreduce_mean mean{on_stream,
                            gq::quantizer{gq::norm::linf{.bucket = 512}, early, gq::rounding::stochastic{},
                                          gq::wire::packed<3>{}},
                            gq::schedule::ring{},
                            {.seed = 5}};
    gq::allreduce_mean host{workers, with(late), gq::schedule::ring{}, {.seed = 5}};
    std::vector<float> x = values(workers.rank()), y = x;
    Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const view(x.data(), x.size());
    mean.set_levels(late);
    mean(view, 4);
    mean.wait();
    host(y, 4);
    EXPECT_TRUE(same_bits(x, y));
  });
}

}  // namespace levels_change_test
