// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: runs this process as one worker of MPI.

#include "launch.hpp"
#include "measure.hpp"

#include <globalq/transport/mpi.hpp>
#if __has_include(<globalq/transport/shared_memory.hpp>)
#include <globalq/transport/shared_memory.hpp>
#define GLOBALQ_BENCH_SHARED_MEMORY
#endif

#include <exception>
#include <limits>
#include <stdexcept>

namespace globalq::bench {
namespace {

void library_sum_of(float const* x, float* sum, std::uint64_t n) {
  constexpr std::uint64_t most = std::numeric_limits<int>::max();
  for (std::uint64_t at = 0; at < n; at += most) {
    int const count = static_cast<int>(std::min(most, n - at));
    if (MPI_Allreduce(x + at, sum + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS)
      throw std::runtime_error{"MPI_Allreduce failed"};
  }
}

template <class T>
exit_code run_on(T& workers, settings const& chosen) {
  report numbers = worker{workers, chosen, library_sum_of}.run();
  numbers.transport = chosen.transport;
  if constexpr (requires { workers.shares_memory(); }) {
    int const sharing = workers.shares_memory() + 1;
    numbers.transport += sharing == workers.size() ? " on one node"
                         : sharing == 1            ? " among nodes"
                                                   : ", " + std::to_string(sharing) + " on a node,";
  }
  int status = done;
  if (workers.rank() == 0) status = publish(numbers, chosen);
  return static_cast<exit_code>(transport::broadcast_value(workers, 0, status));
}

exit_code run_as_chosen(settings const& chosen) {
#if defined(GLOBALQ_BENCH_SHARED_MEMORY)
  if (chosen.transport == "shared_memory") {
    transport::shared_memory workers{MPI_COMM_WORLD};
    return run_on(workers, chosen);
  }
#endif
  transport::mpi workers{MPI_COMM_WORLD};
  return run_on(workers, chosen);
}

}  // namespace

exit_code run_on_mpi(settings const& chosen) {
  try {
    return run_as_chosen(chosen);
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "globalq_collectives: %s\n", problem.what());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, failed);  // other workers may be waiting for this one
    return failed;
  }
}

}  // namespace globalq::bench
