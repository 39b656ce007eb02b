// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The compositions of matrix_test on MPI: all cases of a world size in one launch.

#include "matrix.hpp"

#include <globalq/transport/shared_memory.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using namespace matrix;

namespace {

void run_on_mpi(std::vector<trial> const& trials) {
  gq::transport::mpi workers{MPI_COMM_WORLD, {.deadline = std::chrono::seconds{60}}};
  operators made;
  spaces const on;
  problems wrong;
  for (trial const& t : trials) {
    try {
      run(workers, made.get(t.what), t, on, wrong);
    } catch (gq::error const& e) {
      FAIL() << e.what() << " | " << t.text();
    }
  }
  for (std::size_t k = 0; k < wrong.size() && k < 10; ++k) ADD_FAILURE() << wrong[k];
  EXPECT_EQ(wrong.size(), 0U);
}

int world_size() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

TEST(MatrixMpi, what_fits_keeps_the_promises) {
  std::vector<trial> const trials = sample({world_size()}, 1'000'000, 400);
  RecordProperty("trials", static_cast<int>(trials.size()));
  run_on_mpi(trials);
}

/// This worker's result of one mean of normal values.
template <class T>
std::vector<float> mean_over(T& workers, gq::any_quantizer const& op, composition const& c, std::uint64_t d) {
  std::vector<float> x(d);
  for (std::uint64_t i = 0; i < d; ++i)
    x[i] = value_at<float>(input::normal, 3, workers.rank(), workers.size(), i, d);
  gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 3}, Kokkos::Serial{}};
  mean(x, 0);
  return x;
}

TEST(MatrixMpi, every_road_between_workers_gives_the_same_bits) {
  using gq::transport::mpi;
  constexpr gq::transport::options patient{.deadline = std::chrono::seconds{60}};
  mpi alone{MPI_COMM_WORLD, patient, mpi::largest_piece, {.enabled = false}};
  mpi pairs{MPI_COMM_WORLD, patient, mpi::largest_piece, {.group = 2, .ring_bytes = 1024}};
  gq::transport::shared_memory one_copy{MPI_COMM_WORLD, patient};
  gq::transport::shared_memory two_copies{MPI_COMM_WORLD, patient, {.single_copy = false, .ring_bytes = 512}};
  operators made;
  for (composition const& c : one_for_each_policy()) {
    auto const& op = made.get(c);
    if (!gq::plan_for(op, gq::schedule::any{c.schedule}, world_size(), 1).fits) continue;
    std::uint64_t const d = 30'011;
    std::vector<float> expected;
    gq::transport::threads cluster{world_size(), patient};
    cluster.run([&](auto& workers) {
      auto const mean = mean_over(workers, op, c, d);
      if (workers.rank() == 0) expected = mean;
    });
    for (mpi* road : {&alone, &pairs, static_cast<mpi*>(&one_copy), static_cast<mpi*>(&two_copies)}) {
      auto const mean = mean_over(*road, op, c, d);
      EXPECT_TRUE(same_bytes(mean, expected)) << c.text() << ", sharing with " << road->shares_memory();
    }
  }
}

TEST(MatrixMpi, long_vectors_keep_the_promises) {
  if (world_size() > 3) GTEST_SKIP() << "long vectors run on 1 to 3 ranks";
  std::vector<trial> trials;
  for (composition const& c : one_for_each_policy()) {
    trial t;
    t.what = c;
    t.workers = world_size();
    t.length = 1'000'003;
    t.seed = 5;
    t.chunks[0] = 0;
    t.chunks[1] = 333'333;
    trials.push_back(t);
  }
  run_on_mpi(trials);
}

}  // namespace
