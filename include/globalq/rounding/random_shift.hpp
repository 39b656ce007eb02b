// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: the grid shifted by one random amount for a whole bucket.

#include "shared_draw.hpp"

namespace GLOBALQ_ABI::rounding {

/// @brief Rounds x to the nearest point of a grid shifted by r = u * delta, u uniform in (-1/2, 1/2].
///
/// One r for each (seed, step, worker, bucket): it costs no bytes, since every worker recomputes it. The code is
/// k = floor(x/delta - u + 1/2), one of the two neighbors of x/delta, so nothing is reserved. Unbiased; the errors of
/// the coordinates of a bucket depend on each other by design. Where sums under a global norm are encoded again (requantize)
/// the grid is never shifted back: a decoded value may pass the norm by half a gap, and would be cut off.
/// @tparam ShiftBack  true: decoding adds r, the variance is delta^2/12 whatever x is, and levels must be evenly
///                    spaced; false: stochastic rounding with one shared u, for any levels
/// @source Markov 2024 (thesis), Definition 1 and Lemma 5; the published variance formula belongs to the variant that
///         does not shift back
template <bool ShiftBack = true>
struct random_shift : detail::shared_draw {
  static constexpr bool unbiased = true;
  static constexpr bool shifts_back = ShiftBack;
  constexpr random_shift() : shared_draw{ShiftBack, false} {}
};

}  // namespace GLOBALQ_ABI::rounding
