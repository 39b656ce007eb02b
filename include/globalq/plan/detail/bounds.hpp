// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: bounds on the variance of the mean, including every rounding.
///
/// All bounds are of the form E||G(x) - mean||^2 <= (theta / n) ||x||^2 with ||x||^2 = sum_i ||x_i||^2: theta = V / n,
/// where V ||x||^2 bounds the variance of the sum of all workers. Sources: docs/theory.md.

#include "../../core/arithmetic.hpp"
#include "../../core/detail/compiled.hpp"
#include "../../operator/detail/resolve.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// Properties of levels and norm that bounds depend on.
struct bound_terms {
  double first = 0;   ///< smallest level above zero, as a fraction of the norm
  double spread = 0;  ///< ((r-1)^2 / 4r), r the largest ratio of neighboring levels; 0 for evenly spaced ones
  bool binary = false;
  bool evenly_spaced = false;
  bool zero_free = false;
  bool shifts = false;

  /// Variance of one encoding of y, with d coordinates and E||y||^2 <= m; reach bounds the scale relative to ||x||.
  ///
  /// unit^2 <= reach^2, so first-level terms are (first * reach)^2 d / 4 or first * reach * sqrt(d m).
  double encoding(double d, double reach, double m) const {
    double const step = first * reach;
    if (shifts) return d * step * step / 12;
    double const wide = std::sqrt(d * m) * step;
    if (evenly_spaced) return std::min(d * step * step / 4, wide);
    if (binary) return spread * m + std::min(wide, d * step * step);
    // the least K_p step^(2-p) d^((2-p)/2) m^(p/2) over 0 <= p < 1: at p = (e - 2) / (e - 1), e = step sqrt(d / m), or
    // at 0
    double least = wide > 2 * m ? wide - m : d * step * step / 4;
    if (zero_free) least = d * step * step;
    return spread * m + least;
  }
};

/// Whether each worker encodes its sum again and passes it on to the next.
GLOBALQ_DECL bool is_chain(schedule_facts const& s, int workers);
/// Whether variance_bound() uses additions.
GLOBALQ_DECL bool needs_additions(resolution const& r, schedule_facts const& s, int workers);

/// How many times smaller a rounding that is correlated between workers makes the variance of their own encodings, if
/// fractions of gaps are uniform and independent; else 1.
/// @param vectors  that are encoded
GLOBALQ_DECL double expected_gain(operator_facts const& op, resolution const& r, schedule_facts const& s,
                                  int vectors);

/// theta of an operator on a schedule; NaN if there is no bound (for example with rounding to nearest).
/// @param length      length of the vector
/// @param additions   of the schedule; empty unless needs_additions()
/// @param gain        expected_gain(), for the expected value instead of the bound
GLOBALQ_DECL double variance_bound(operator_facts const& op, resolution const& r, schedule_facts const& s,
                                   int workers, std::uint64_t length,
                                   std::vector<std::pair<int, int>> const& additions, double gain = 1);

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "bounds-inl.hpp"
#endif
