// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: a whole run on one transport; each transport is compiled in its own file.

#include "options.hpp"

namespace mean_of_files {

/// @brief The end of a run: the exit code, and the text that rank 0 prints.
struct ending {
  exit_code code = done;
  std::string text;
  std::string warning = {};  ///< for stderr, if the run succeeded
};

/// @brief Runs all workers in this process.
ending run_on_threads(settings const& chosen);

/// @brief Runs this process as one worker of MPI_COMM_WORLD; aborts all processes if others may be waiting for it.
/// @pre MPI is initialized
ending run_on_mpi(settings const& chosen);

}  // namespace mean_of_files
