// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: averages float32 files with any composition of globalq. See README.md here.

#include "launch.hpp"
#include "options.hpp"

#ifdef GLOBALQ_HAS_MPI
#include <mpi.h>
#endif

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace mean_of_files;
using result = command_line::result;

Kokkos::InitializationSettings kokkos_settings(settings const& chosen) {
  Kokkos::InitializationSettings wanted;
  wanted.set_disable_warnings(true);
  if (chosen.execution == execution_kind::serial) wanted.set_num_threads(1);
  return wanted;
}

/// Prints the result of a run, at one rank; returns the exit code.
int finish(ending const& end, bool prints) {
  if (prints && end.code == done) std::fputs(end.text.c_str(), stdout);
  std::string const& problem = end.code == done ? end.warning : end.text;
  if (prints && !problem.empty()) std::fprintf(stderr, "mean_of_files: %s\n", problem.c_str());
  std::fflush(nullptr);
  return end.code;
}

#ifdef GLOBALQ_HAS_MPI

/// Makes all ranks continue in the same way, even if a launcher passed them different arguments.
void agree_on_start(command_line& line) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  struct {
    int outcome;
    int rank;
  } mine{static_cast<int>(line.outcome), rank}, most{};
  MPI_Allreduce(&mine, &most, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
  line.outcome = static_cast<result>(most.outcome);
  if (line.outcome == result::run) return;
  int length = static_cast<int>(line.text.size());
  MPI_Bcast(&length, 1, MPI_INT, most.rank, MPI_COMM_WORLD);
  line.text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(line.text.data(), length, MPI_CHAR, most.rank, MPI_COMM_WORLD);
}

#endif

int run(command_line const& line, bool uses_mpi, bool prints) {
  if (line.outcome == result::help) return finish({done, line.text}, prints);
  if (line.outcome == result::refused) return finish({refused, line.text}, prints);
  ending end;
  {
    Kokkos::ScopeGuard const kokkos{kokkos_settings(line.chosen)};
#ifdef GLOBALQ_HAS_MPI
    end = uses_mpi ? run_on_mpi(line.chosen) : run_on_threads(line.chosen);
#else
    static_cast<void>(uses_mpi);
    end = run_on_threads(line.chosen);
#endif
  }
  return finish(end, prints);
}

}  // namespace

int main(int argc, char** argv) {
  command_line line = read_command_line(argc, argv);
#ifdef GLOBALQ_HAS_MPI
  // ranks of a launcher agree even on a refusal, because the others may have valid arguments
  bool const uses_mpi =
      line.outcome == result::run ? line.chosen.transport == transport_kind::mpi : is_under_mpi_launcher();
  if (uses_mpi) {
    int provided = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    agree_on_start(line);
    int const code = run(line, true, rank == 0);
    MPI_Finalize();
    return code;
  }
#endif
  return run(line, false, true);
}
