// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: bins as a distribution with a density, so that levels may be anywhere inside a bin.

#include "bins.hpp"

#include <algorithm>

namespace GLOBALQ_ABI::learn {

/// @brief Each bin [u, v] of mean m is uniform on [u, m], with the share (v - m)/(v - u) of its mass, and on [m, v].
///
/// Among splits at the mean, only this one keeps both mass and mean; its density is never negative. If the mean of a
/// bin is within 2^-30 of its width of an edge, all mass is at that edge.
class piecewise_uniform {
 public:
  explicit piecewise_uniform(bins const& b) {
    std::size_t const n = b.size();
    knot_.reserve(2 * n + 2);
    sum_.reserve(2 * n + 2);
    // atoms at 0 belong to [0, 0]
    knot_.push_back(0);
    sum_.push_back({});
    for (std::size_t k = 0; k < n; ++k) {
      double const u = b.edge[k], v = b.edge[k + 1], thin = (v - u) * 0x1p-30;
      double m = b.mean[k];
      if (!(m - u > thin)) m = u;  // all mass at the edge, instead of a narrow part of enormous density
      if (!(v - m > thin)) m = v;
      double const low = v > u ? (v - m) / (v - u) : 1.0;
      append(u, m, b.mass[k] * low);
      append(m, v, b.mass[k] * (1 - low));
    }
  }

  /// @complexity O(log n)
  moments below(double t) const {
    if (t < 0) return {};
    if (t >= knot_.back()) return sum_.back();
    std::size_t const i =
        static_cast<std::size_t>(std::upper_bound(knot_.begin(), knot_.end(), t) - knot_.begin());
    double const u = knot_[i - 1], v = knot_[i];
    return plus(sum_[i - 1], u, t, (sum_[i].mass - sum_[i - 1].mass) * ((t - u) / (v - u)));
  }

  /// @complexity O(log n)
  double quantile(double q) const {
    auto const at = std::lower_bound(sum_.begin(), sum_.end(), q,
                                     [](moments const& s, double value) { return s.mass < value; });
    if (at == sum_.begin()) return 0;
    if (at == sum_.end()) return knot_.back();
    std::size_t const i = static_cast<std::size_t>(at - sum_.begin());
    double const low = sum_[i - 1].mass, high = sum_[i].mass;
    return knot_[i - 1] + (knot_[i] - knot_[i - 1]) * ((q - low) / (high - low));
  }

 private:
  /// Adds a uniform mass on [u, t] to moments.
  static moments plus(moments s, double u, double t, double mass) {
    s.mass += mass;
    s.first += mass * (0.5 * (u + t));
    s.second += mass * ((u * u + u * t + t * t) / 3);
    return s;
  }
  void append(double u, double v, double mass) {
    knot_.push_back(v);
    sum_.push_back(plus(sum_.back(), u, v, mass));
  }

  std::vector<double> knot_;
  std::vector<moments> sum_;  // of [0, knot]
};

}  // namespace GLOBALQ_ABI::learn
