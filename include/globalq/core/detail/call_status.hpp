// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the status of a call, on which the workers agree before they encode.

#include "abi.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::detail {

/// The result of a handshake.
enum class call_status : std::uint32_t {
  mean,          ///< compute the mean
  zero,          ///< every value of every worker is zero, and so is the mean
  not_finite,    ///< the input of a worker contains NaN or infinity
  beyond_scale,  ///< a value is larger than the scale of norm::fixed
  disagree       ///< not all workers made the same call
};

}  // namespace GLOBALQ_ABI::detail
