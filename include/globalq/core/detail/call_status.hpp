// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: what becomes of a call, as its workers agree before anything is encoded.

#include "abi.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::detail {

/// What the records of an opening exchange come to.
enum class call_status : std::uint32_t {
  mean,          ///< go on
  zero,          ///< every value of every worker is zero, and so is the mean
  not_finite,    ///< a worker brought NaN or infinity
  beyond_scale,  ///< a value is larger than the scale of norm::fixed
  disagree       ///< not all workers made the same call
};

}  // namespace GLOBALQ_ABI::detail
