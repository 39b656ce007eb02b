// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: the command line.

#include <cstdint>
#include <string>
#include <vector>

namespace globalq::bench {

/// Exit codes.
enum exit_code : int { done = 0, wrong = 1, refused = 2, failed = 3 };

/// @brief Settings of a run.
struct settings {
  std::string transport;
  int workers = 4;  ///< of the transport threads; otherwise the launcher sets it
  int threads = 1;  ///< of the kernels of a worker
  std::vector<std::uint64_t> sizes{1U << 12, 1U << 16, 1U << 20, 1U << 24};
  std::vector<std::string> operators;  ///< empty: all
  std::uint64_t repeat = 21;
  double budget = 30;  ///< seconds for a size; at least three calls are timed
  std::uint64_t chunk_values = 0;
  double rate = 0;  ///< of a worker's link, bits a second; 0: unknown
  std::string markdown, json;
};

/// @brief Whether an MPI launcher started this process.
bool is_under_mpi_launcher();

/// @brief Reads the command line.
/// @param speaks  whether this process prints help and errors
/// @returns       the exit code if there is nothing to run, else -1
int read_command_line(int argc, char** argv, bool speaks, settings& chosen);

}  // namespace globalq::bench
