// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: the report of rank 0.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mean_of_files {

/// @brief The numbers of a run; those that do not exist are left out.
struct report {
  int workers = 1;
  std::uint64_t length = 0;      ///< values of a vector
  std::uint64_t bytes_sent = 0;  ///< by the busiest worker in a call
  bool bytes_modeled = false;    ///< bytes_sent is a model: the transport's library decides
  double bits_per_value = 0;     ///< of one worker's encoded vector
  double seconds = 0;            ///< median over calls of the maximum over workers
  bool identical = true;         ///< all workers' results agreed bit for bit in every call
  bool non_finite = false;       ///< the written mean is NaN
  std::optional<int>
      non_finite_rank;         ///< the first whose values have NaN or infinity; none: the mean overflowed
  std::optional<double> nmse;  ///< ||out - mean||^2 / ((1/n) sum ||x_i||^2)
  std::optional<double> theta_bound;  ///< the plan's bound on nmse of one call
  std::vector<double> levels;         ///< that were learned from the inputs; empty: none were
};

/// @brief One JSON object in one line.
std::string as_json(report const& numbers);

/// @brief Several readable lines.
std::string as_text(report const& numbers);

/// @brief The warning for stderr after a successful run, or an empty text.
std::string warning(report const& numbers);

}  // namespace mean_of_files
