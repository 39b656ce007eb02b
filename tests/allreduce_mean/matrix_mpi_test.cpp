// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The compositions of matrix_test on MPI: all cases of a world size in one launch.

#include "matrix.hpp"

#include <globalq/transport/mpi.hpp>

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
