// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: a run on one transport; each transport is compiled in its own file.

#include "options.hpp"

namespace globalq::bench {

/// @brief Runs all workers in this process.
exit_code run_on_threads(settings const& chosen);

/// @brief Runs this process as one worker of MPI_COMM_WORLD. If one worker fails, all processes end.
/// @pre MPI is initialized
exit_code run_on_mpi(settings const& chosen);

}  // namespace globalq::bench
