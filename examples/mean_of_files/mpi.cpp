// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: this process as one worker among those of MPI.

#include "average.hpp"
#include "launch.hpp"

#include <globalq/transport/mpi.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace mean_of_files {
namespace {

/// Aborts all processes: others may be waiting for this one, until their deadlines.
[[noreturn]] void abort_all(int rank, char const* text) {
  // Rank 0 reports what happened. If it cannot, the others do after a moment.
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds{1});
  std::fprintf(stderr, "mean_of_files: %s\n", text);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, failed);
  std::exit(failed);
}

/// Publishes the files of all ranks, or none.
void publish(globalq::transport::mpi& workers, output_file& file) {
  try {
    agree(workers, attempt([&] { file.publish(); }));
  } catch (...) {
    file.withdraw();
    throw;
  }
}

}  // namespace

ending run_on_mpi(settings const& chosen) {
  int size = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    if (chosen.workers && *chosen.workers != size)
      throw globalq::configuration_error{"globalq: option workers: \"" + std::to_string(*chosen.workers) +
                                         "\" is not the number of MPI processes, which is " +
                                         std::to_string(size) +
                                         "; leave it out: the launcher decides, as in mpirun -n N"};
    check_patterns(chosen, size);
    globalq::transport::mpi workers{MPI_COMM_WORLD, {.deadline = chosen.deadline}};
    output_file file{path_of(chosen.output, rank)};
    report const numbers = worker{workers, chosen}.run(file);
    publish(workers, file);
    return {done, chosen.json ? as_json(numbers) : as_text(numbers), warning(numbers)};
  } catch (agreed_failure const& problem) {
    return {problem.code, problem.what()};
  } catch (globalq::configuration_error const& problem) {
    return {refused, problem.what()};
  } catch (globalq::disagreement_error const& problem) {  // these two are thrown by all workers together
    return {failed, problem.what()};
  } catch (globalq::non_finite_error const& problem) {
    return {failed, problem.what()};
  } catch (std::exception const& problem) {
    abort_all(rank, problem.what());
  }
}

}  // namespace mean_of_files
