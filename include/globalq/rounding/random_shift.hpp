// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: to a grid with one random shift per bucket.

#include "correlated.hpp"
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

  constexpr random_shift for_worker(std::uint32_t, std::uint32_t workers) const {
    random_shift told = *this;
    told.encoders = workers;
    return told;
  }
  /// Whether it depends on the worker.
  constexpr bool told() const { return correlated; }
  /// m / (m - 1) for the smallest cohort, of m workers, if correlated and shifted back.
  static constexpr double variance_factor(std::uint32_t workers) {
    if (!ShiftBack || workers < 2) return 1;
    double const least = rounding::correlated::smallest_cohort(workers);
    return least / (least - 1);
  }
};

/// @brief Random shift whose shifts divide the range among workers: for each bucket, u of each worker is in another one of n
/// equal parts, under a random permutation that they share, as the words of @c correlated are.
///
/// Each worker's shift is uniform by itself (to 2^-31), so each worker is unbiased, with the variance of @c random_shift. It
/// gains where vectors are alike, as replicas of weights are: n^2 / (2n - 1) times less variance of the mean for n equal
/// vectors, nothing on average for independent ones. With shifting back two workers whose values are
/// half a gap apart lose; the variance is then at most n/(n-1) times the bound of @c random_shift. Without it covariances are
/// never positive, and the gain is that of @c correlated.
///
/// In host memory only. Workers beyond 16 form cohorts. Sums that are encoded again are rounded as by @c random_shift.
/// @tparam ShiftBack  as in random_shift
/// @source Suresh, Sun, Ro, Yu 2022 (arXiv 2203.04925), applied to Definition 1 of Markov 2024; bound: docs/theory.md
template <bool ShiftBack = true>
constexpr random_shift<ShiftBack> correlated_shift() {
  random_shift<ShiftBack> shift;
  shift.correlated = true;
  return shift;
}

}  // namespace GLOBALQ_ABI::rounding
