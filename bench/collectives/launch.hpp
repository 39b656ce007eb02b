// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: a whole run on one transport; each is compiled in a file of its own.

#include "options.hpp"

namespace globalq::bench {

/// @brief Runs all workers in this process.
exit_code run_on_threads(settings const& chosen);

/// @brief Runs this process as one worker of MPI_COMM_WORLD. Where a worker fails alone, all processes end.
/// @pre MPI is initialized
exit_code run_on_mpi(settings const& chosen);

}  // namespace globalq::bench
