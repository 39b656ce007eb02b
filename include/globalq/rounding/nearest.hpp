// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: to the nearest level, deterministic and biased.

#include "shared_draw.hpp"

namespace GLOBALQ_ABI::rounding {

/// @brief Rounds to the nearest level, ties away from zero. Biased: training with it needs error feedback.
struct nearest : detail::shared_draw {
  static constexpr bool unbiased = false;
  constexpr nearest() : shared_draw{false, true} {}
};

}  // namespace GLOBALQ_ABI::rounding
