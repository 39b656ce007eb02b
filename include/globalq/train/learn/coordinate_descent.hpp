// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: ALQ: moves each level in turn to its best place between its neighbors.

#include "piecewise_uniform.hpp"
#include "variance.hpp"

#include <algorithm>
#include <optional>

namespace GLOBALQ_ABI::learn {

namespace detail {

/// The best place of level i between its neighbors: the minimum of Psi, which is convex in this level.
template <Distribution F>
double best_place(F const& f, level_set const& l, std::size_t i) {
  double const c = l.values[i + 1];
  moments const to_c = f.below(c);
  if (i > 0) {
    double const a = l.values[i - 1];
    moments const gap = to_c - f.below(a);
    return f.quantile(to_c.mass - (gap.first - a * gap.mass) / (c - a));
  }
  // without zero: 2 b F(b) = integral over (b, c] of (c - r) dF; the left side rises with b, and the right side falls
  double low = 0, high = c;
  for (int k = 0; k < 64; ++k) {
    double const b = 0.5 * (low + high);
    moments const to_b = f.below(b);
    double const right = c * (to_c.mass - to_b.mass) - (to_c.first - to_b.first);
    (2 * b * to_b.mass < right ? low : high) = b;
  }
  return 0.5 * (low + high);
}

}  // namespace detail

/// @brief ALQ: coordinate descent on the variance.
///
/// From left to right, each level becomes F^-1( F(c) - integral over (a, c] of (r - a)/(c - a) dF ), with a and c its
/// neighbors. No update raises the variance. Finds a local minimum, which depends on the start; optimal finds the
/// global one.
/// @complexity  O(size log bins) for each sweep
/// @source      Faghri et al. 2020, section 3.1, Theorem 1; without zero appendix B.3.2
struct coordinate_descent {
  std::uint32_t size = 7;                         ///< levels above zero
  bool zero_free = false;                         ///< levels +-l_1, ..., +-1 instead of 0, l_1, ..., 1
  std::optional<level_set> start = std::nullopt;  ///< if empty: evenly spaced
  int max_sweeps = 200;
  double tolerance = 1e-5;  ///< stops when a sweep lowers the variance by less than this share of it

  /// @throws configuration_error if no table has that number of levels, or if start does not match size and zero_free
  template <Distribution F>
  solution operator()(F const& f) const {
    solution r;
    r.levels = detail::start_of(start, size, zero_free, "coordinate_descent");
    auto& l = r.levels.values;
    detail::descend(
        r, max_sweeps, tolerance, [&] { return variance(f, r.levels); },
        [&] {
          for (std::size_t i = r.levels.first_free(); i + 1 < l.size(); ++i) {
            double const least = i > 0 && l[i - 1] > 0 ? l[i - 1] * closest_ratio : smallest_level;
            double const best = detail::best_place(f, r.levels, i), most = l[i + 1] / closest_ratio;
            // convex in l[i]: the nearest allowed place is the best one
            l[i] = std::max(least, std::min(best, most));
          }
        });
    return r;
  }
  solution operator()(bins const& b) const { return (*this)(piecewise_uniform(b)); }
};

}  // namespace GLOBALQ_ABI::learn
