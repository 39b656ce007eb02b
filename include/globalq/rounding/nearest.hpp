// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: to the nearest level, deterministic and biased.

#include "one_word.hpp"

namespace GLOBALQ_ABI::rounding {

/// @brief Rounds to the nearest level, halves away from zero. Biased: training with it needs error feedback.
struct nearest : detail::one_word {
  static constexpr bool unbiased = false;
  constexpr nearest() : one_word{false, true} {}
};

}  // namespace GLOBALQ_ABI::rounding
