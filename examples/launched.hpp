// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Whether an MPI launcher has started this process: known before MPI is initialized.

#include <cstdlib>
#include <optional>
#include <string>

namespace examples {

/// This process's rank as the MPI launcher that started it says (Open MPI, or one that speaks PMI: MPICH, Intel MPI,
/// Slurm); nothing when there was none.
inline std::optional<std::string> launched_rank() {
  for (char const* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (char const* rank = std::getenv(name)) return rank;
  return std::nullopt;
}

}  // namespace examples
