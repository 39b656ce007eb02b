// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief globalq_collectives: the whole mean compared with the MPI library's Allreduce of float32. See README.md here.

#include "launch.hpp"
#include "options.hpp"

#if defined(GLOBALQ_HAS_MPI)
#include <mpi.h>
#endif

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

using namespace globalq::bench;

exit_code run(settings const& chosen) {
  Kokkos::ScopeGuard const kokkos{
      Kokkos::InitializationSettings{}.set_num_threads(chosen.threads).set_disable_warnings(true)};
#if defined(GLOBALQ_HAS_MPI)
  if (chosen.transport != "threads") return run_on_mpi(chosen);
#endif
  return run_on_threads(chosen);
}

}  // namespace

int main(int argc, char** argv) {
#if !defined(NDEBUG)
  std::fputs(
      "globalq_collectives: built with assertions, so times are not meaningful; use the release preset\n",
      stderr);
#endif
  settings chosen;
  int status = failed;
#if defined(GLOBALQ_HAS_MPI)
  int rank = 0;
  bool const launched = is_under_mpi_launcher();
  if (launched) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
  status = read_command_line(argc, argv, rank == 0, chosen);
  if (!launched && chosen.transport != "threads") MPI_Init(&argc, &argv);
#else
  status = read_command_line(argc, argv, true, chosen);
#endif
  if (status < 0) {
    try {
      status = run(chosen);
    } catch (std::exception const& problem) {
      std::fprintf(stderr, "globalq_collectives: %s\n", problem.what());
      status = failed;
    }
  }
#if defined(GLOBALQ_HAS_MPI)
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) MPI_Finalize();
#endif
  return status;
}
