// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Runs the tests of one executable on every rank of an MPI job.
///
/// Rank 0 reports as usual and writes the results file. The other ranks print only their failures, with their rank
/// in front. Every rank returns the largest result of all, so one failure anywhere fails the job.

#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <iostream>
#include <string>

#include "tests/support/crash.hpp"

namespace {

class failure_printer : public ::testing::EmptyTestEventListener {
 public:
  explicit failure_printer(int rank) : prefix_{"[rank " + std::to_string(rank) + "] "} {}

  void OnTestStart(::testing::TestInfo const& test) override {
    test_ = std::string{test.test_suite_name()} + "." + test.name();
  }

  void OnTestPartResult(::testing::TestPartResult const& part) override {
    if (!part.failed()) return;
    std::cerr << prefix_ + test_ + "\n" + prefix_ + (part.file_name() != nullptr ? part.file_name() : "") +
                     ":" + std::to_string(part.line_number()) + ": " + part.message() + "\n"
              << std::flush;
  }

 private:
  std::string prefix_;
  std::string test_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  ::testing::InitGoogleTest(&argc, argv);
  support::name_crashes();
  if (rank != 0) {
    ::testing::GTEST_FLAG(output) = "";
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
    listeners.Append(new failure_printer{rank});
  }

  int result = 0;
  {
    Kokkos::ScopeGuard const kokkos{argc, argv};
    result = RUN_ALL_TESTS();
  }
  int worst = result;
  MPI_Allreduce(&result, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && result == 0 && worst != 0) std::cerr << "A rank other than 0 reported a failure.\n";
  MPI_Finalize();
  return worst;
}
