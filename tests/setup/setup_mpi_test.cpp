// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The set-up of MPI tests: one job of the asked size, started by the common main function.

#include <gtest/gtest.h>
#include <mpi.h>

TEST(SetupMpi, every_rank_takes_part) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, size * (size - 1) / 2);
}
