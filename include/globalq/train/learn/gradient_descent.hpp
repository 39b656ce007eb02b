// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: gradient descent on all levels at once, with steps that keep them in order.

#include "piecewise_uniform.hpp"
#include "variance.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace GLOBALQ_ABI::learn {

/// @brief ALQG: each level moves against its derivative g by min(eta |g|, delta / 2), with delta the distance to the
///        nearer neighbor.
///
/// The bound keeps levels in order without a projection. It does not ensure that the variance falls; so eta is halved
/// until it does, and doubled after each successful step.
/// @complexity  O(size log bins) for each step
/// @source      Faghri et al. 2020, section 3.2, the update after equation (6)
struct gradient_descent {
  std::uint32_t size = 7;
  bool zero_free = false;
  std::optional<level_set> start = std::nullopt;  ///< if empty: evenly spaced
  int max_steps = 5000;
  double rate = 1;          ///< eta of the first step
  double tolerance = 1e-7;  ///< stops when a step lowers the variance by less than this share of it

  /// @throws configuration_error if no table has that number of levels, or if start does not match size and zero_free
  template <Distribution F>
  solution operator()(F const& f) const {
    solution r;
    r.levels = detail::start_of(start, size, zero_free, "gradient_descent");
    r.variance = variance(f, r.levels);
    r.converged = r.levels.first_free() + 1 >= r.levels.values.size();  // no level may move
    double eta = rate;
    level_set next = r.levels;
    while (!r.converged && r.iterations < max_steps) {
      ++r.iterations;
      double now = r.variance;
      bool fell = false;
      for (int halvings = 0; halvings < 60 && !fell; ++halvings) {
        step(f, r.levels, eta, next);
        now = variance(f, next);
        fell = now < r.variance;
        if (!fell) eta /= 2;
      }
      r.converged = !fell || now > r.variance * (1 - tolerance);
      if (fell) {
        r.levels.values.swap(next.values);
        r.variance = now;
        eta *= 2;
      }
    }
    return r;
  }
  solution operator()(bins const& b) const { return (*this)(piecewise_uniform(b)); }

 private:
  template <Distribution F>
  static void step(F const& f, level_set const& from, double eta, level_set& to) {
    auto const& l = from.values;
    to.values = l;
    for (std::size_t i = from.first_free(); i + 1 < l.size(); ++i) {
      double const g = variance_derivative(f, from, i);
      double const delta = std::min(l[i + 1] - l[i], i > 0 ? l[i] - l[i - 1] : 2 * l[i]);
      // two neighbors could meet in the middle: slightly less than half keeps them apart
      double const most = 0.499 * std::max(0.0, delta - 4 * (closest_ratio - 1) * l[i + 1]);
      to.values[i] -= std::copysign(std::min(eta * std::fabs(g), most), g);
    }
    detail::separate(to);
  }
};

}  // namespace GLOBALQ_ABI::learn
