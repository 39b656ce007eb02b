// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: a whole run on one transport; each is compiled in a file of its own.

#include "options.hpp"

namespace mean_of_files {

/// @brief How a run ended: the exit code, and what rank 0 prints.
struct ending {
  exit_code code = done;
  std::string text;
  std::string warning = {};  ///< for stderr, beside a run that ended well
};

/// @brief Runs all workers in this process.
ending run_on_threads(settings const& chosen);

/// @brief Runs this process as one worker of MPI_COMM_WORLD; does not return when others may be waiting for it.
/// @pre MPI is initialized
ending run_on_mpi(settings const& chosen);

}  // namespace mean_of_files
