// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: to a grid with one random shift per bucket.

#include "shared_draw.hpp"

namespace GLOBALQ_ABI::rounding {

/// @brief Rounds x to the nearest point of a grid shifted by r = u * delta, u uniform in (-1/2, 1/2].
///
/// There is one r for each (seed, step, worker, bucket). It is not sent, because every worker can compute it. The code
/// is k = floor(x/delta - u + 1/2), one of the two neighbors of x/delta, so no codes are reserved. Unbiased; the errors
/// of the coordinates of a bucket are dependent by design. If sums under a global norm are encoded again (requantize),
/// the grid is never shifted back, because a decoded value may exceed the norm by half a gap and would be clipped.
/// @tparam ShiftBack  true: decoding adds r, the variance is delta^2/12 for any x, and levels must be evenly spaced;
///                    false: stochastic rounding with one shared u, for any levels
/// @source Markov 2024 (thesis), Definition 1 and Lemma 5; the published variance formula belongs to the variant that
///         does not shift back
template <bool ShiftBack = true>
struct random_shift : detail::shared_draw {
  static constexpr bool unbiased = true;
  static constexpr bool shifts_back = ShiftBack;
  constexpr random_shift() : shared_draw{ShiftBack, false} {}
};

}  // namespace GLOBALQ_ABI::rounding
