// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: AMQ: learns levels that are powers of one multiplier p.

#include "piecewise_uniform.hpp"
#include "variance.hpp"

#include <algorithm>
#include <cmath>

namespace GLOBALQ_ABI::learn {

/// @brief Psi'(p) of the levels p^m, ..., p, 1, m = size - 1.
///
/// It needs only the moments of F, so it is a closed form if F is one.
/// @source Faghri et al. 2020, equation (8): half of the derivative, over the distribution of signed values, is this one over
///         magnitudes. With a zero the first term changes
template <Distribution F>
double multiplier_derivative(F const& f, double p, std::uint32_t size, bool zero_free) {
  int const m = static_cast<int>(size) - 1;
  if (m == 0) return 0;
  moments above = f.below(1.0);
  double sum = 0, high = 1;  // p^j
  for (int j = 0; j < m; ++j) {
    moments const at = f.below(high * p), gap = above - at;
    double const dhigh = j == 0 ? 0 : j * high / p, dlow = (j + 1) * high;
    sum += (dhigh + dlow) * gap.first - (dhigh * high * p + high * dlow) * gap.mass;
    above = at;
    high *= p;
  }
  double const dlast = m * high / p;
  return sum + (zero_free ? 2 * high * dlast * above.mass : dlast * above.first);
}

/// @brief AMQ: the multiplier of least variance.
///
/// Psi(p) may have several local minima, so it is computed on a grid; then the best point is refined by bisection where
/// Psi' changes its sign. If @c start is set, the paper's gradient descent runs from there instead.
/// @complexity  (grid + 60) size evaluations of F
/// @source      Faghri et al. 2020, section 3.3
struct multiplier {
  std::uint32_t size = 4;
  bool zero_free = true;
  double start = 0;      ///< above 0: gradient descent from this p
  int grid = 256;        ///< points: half at equal ratios of p, half at equal distances
  int max_steps = 1000;  ///< of gradient descent
  /// Gradient descent stops when a step lowers the variance by less than this share of it.
  double tolerance = 1e-9;

  /// @throws configuration_error if no table has that number of levels, or if start is not below 1
  template <Distribution F>
  solution operator()(F const& f) const {
    detail::check_size(size, "multiplier");
    solution r;
    if (size == 1) {
      r.levels = exponential_levels(1, 0.5, zero_free);
    } else {
      r.levels = exponential_levels(size, start > 0 ? descend(f, r) : search(f, r), zero_free);
    }
    r.variance = variance(f, r.levels);
    return r;
  }
  solution operator()(bins const& b) const { return (*this)(piecewise_uniform(b)); }

 private:
  double least() const { return std::pow(smallest_level, 1.0 / (size - 1)); }
  static constexpr double most = 1 / (1 + 4 * (closest_ratio - 1));

  template <Distribution F>
  double psi(F const& f, double p) const {
    return variance(f, exponential_levels(size, p, zero_free));
  }

  template <Distribution F>
  double search(F const& f, solution& r) const {
    // half of the grid in log p, where small multipliers are, half in p
    std::vector<double> at;
    int const half = std::max(2, grid / 2);
    for (int k = 0; k <= half; ++k) {
      double const share = static_cast<double>(k) / half;
      at.push_back(least() * std::pow(most / least(), share));
      at.push_back(least() + (most - least()) * share);
    }
    for (double& p : at) p = std::clamp(p, least(), most);
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    std::size_t best = 0;
    double found = psi(f, at[0]);
    for (std::size_t k = 1; k < at.size(); ++k)
      if (double const v = psi(f, at[k]); v < found) {
        found = v;
        best = k;
      }
    double low = at[best > 0 ? best - 1 : 0], high = at[std::min(best + 1, at.size() - 1)];
    for (r.iterations = 0; r.iterations < 60; ++r.iterations) {
      double const p = 0.5 * (low + high);
      (multiplier_derivative(f, p, size, zero_free) < 0 ? low : high) = p;
    }
    double const p = 0.5 * (low + high);
    return psi(f, p) < found ? p : at[best];
  }

  template <Distribution F>
  double descend(F const& f, solution& r) const {
    if (!(start < 1))
      throw configuration_error("globalq: learn::multiplier: a start of " + std::to_string(start) +
                                " is not below 1; use a start in (0, 1), for example 0.5");
    double p = std::clamp(start, least(), most), v = psi(f, p), eta = 1;
    r.converged = false;
    while (!r.converged && r.iterations < max_steps) {
      ++r.iterations;
      double const g = multiplier_derivative(f, p, size, zero_free);
      double const room = 0.5 * (g > 0 ? p - least() : most - p);
      double next = p, now = v;
      bool fell = false;
      for (int halvings = 0; halvings < 60 && !fell; ++halvings) {
        next = p - std::copysign(std::min(eta * std::fabs(g), room), g);
        now = psi(f, next);
        fell = now < v;
        if (!fell) eta /= 2;
      }
      r.converged = !fell || now > v * (1 - tolerance);
      if (fell) {
        p = next;
        v = now;
        eta *= 2;
      }
    }
    return p;
  }
};

}  // namespace GLOBALQ_ABI::learn
