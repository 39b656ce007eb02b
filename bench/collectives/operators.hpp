// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: the operators and schedules to compare.

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/schedule/any.hpp>

#include <string>
#include <vector>

namespace globalq::bench {

/// @brief What the telemetry of a contestant observes.
enum class watched { nothing, times, errors };

/// @brief An operator on a schedule.
struct contestant {
  std::string name;
  any_quantizer op;
  schedule::any schedule;
  bool same_bits;  ///< all workers must end with the same bits
  watched telemetry = watched::nothing;
};

/// @brief Name in the table of MPI_Allreduce of float32 without the library.
inline constexpr char const* library_sum = "MPI_Allreduce";

/// @brief All contestants. Their kernels are compiled in one place.
std::vector<contestant> operators();

}  // namespace globalq::bench
