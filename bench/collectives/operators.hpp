// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: what is compared.

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/schedule/any.hpp>

#include <string>
#include <vector>

namespace globalq::bench {

/// @brief What a contestant's telemetry looks at.
enum class watched { nothing, times, errors };

/// @brief An operator on a schedule.
struct contestant {
  std::string name;
  any_quantizer op;
  schedule::any schedule;
  bool same_bits;  ///< the library promises that all workers end with the same
  watched telemetry = watched::nothing;
};

/// @brief What MPI_Allreduce of float32, called by itself, is called in the table.
inline constexpr char const* library_sum = "MPI_Allreduce";

/// @brief All contestants. Their kernels are compiled in one place.
std::vector<contestant> operators();

}  // namespace globalq::bench
