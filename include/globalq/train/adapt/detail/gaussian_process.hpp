// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: a Gaussian process through a few dozen points, and the expected improvement at another point.

#include "../../../core/detail/abi.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// a = l l^T in the lower triangle, n x n; false if a is not positive definite.
inline bool cholesky(std::vector<double>& a, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = j; i < n; ++i) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i == j && !(sum > 0)) return false;
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  }
  return true;
}

/// x <- l^-1 x.
inline void solve_lower(std::vector<double> const& l, std::size_t n, double* x) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) x[i] -= l[i * n + k] * x[k];
    x[i] /= l[i * n + i];
  }
}

/// @brief Estimates a function from its values at some points of the unit cube.
///
/// Squared exponential kernel; of four length scales, the one that makes the values most likely.
class gaussian_process {
 public:
  using point = std::vector<double>;

  /// @param values  of the points; at least one
  gaussian_process(std::vector<point> points, std::vector<double> const& values)
      : points_(std::move(points)) {
    std::size_t const n = points_.size();
    for (double v : values) mean_ += v / static_cast<double>(n);
    double variance = 0;
    for (double v : values) variance += (v - mean_) * (v - mean_) / static_cast<double>(n);
    deviation_ = variance > 0 ? std::sqrt(variance) : 1;
    std::vector<double> scaled(n);
    for (std::size_t i = 0; i < n; ++i) scaled[i] = (values[i] - mean_) / deviation_;
    double best = -std::numeric_limits<double>::max();
    for (double scale : {0.15, 0.3, 0.6, 1.2}) {
      double const dimensions = static_cast<double>(points_[0].size());
      double const width = 1 / (2 * scale * scale * dimensions);
      std::vector<double> l(n * n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j <= i; ++j)
          l[i * n + j] = kernel(points_[i], points_[j], width) + (i == j ? 1e-6 : 0);
      if (!cholesky(l, n)) continue;
      std::vector<double> z = scaled;
      solve_lower(l, n, z.data());
      double likelihood = 0;
      for (std::size_t i = 0; i < n; ++i) likelihood -= z[i] * z[i] / 2 + std::log(l[i * n + i]);
      if (likelihood > best) best = likelihood, width_ = width, lower_ = std::move(l), z_ = std::move(z);
    }
  }

  /// E max(0, least - f(x)).
  double expected_improvement(point const& x, double least) const {
    std::size_t const n = points_.size();
    std::vector<double> k(n);
    for (std::size_t i = 0; i < n; ++i) k[i] = kernel(points_[i], x, width_);
    solve_lower(lower_, n, k.data());
    double mean = 0, variance = 1 + 1e-6;
    for (std::size_t i = 0; i < n; ++i) mean += k[i] * z_[i], variance -= k[i] * k[i];
    double const s = std::sqrt(std::max(variance, 1e-12)), gain = (least - mean_) / deviation_ - mean,
                 u = gain / s;
    double const density = std::exp(-u * u / 2) / std::sqrt(2 * std::numbers::pi);
    return deviation_ * (gain * std::erfc(-u / std::numbers::sqrt2) / 2 + s * density);
  }

 private:
  static double kernel(point const& a, point const& b, double width) {
    double sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
    return std::exp(-sum * width);
  }

  std::vector<point> points_;
  double mean_ = 0, deviation_ = 1, width_ = 1;
  std::vector<double> lower_, z_;
};

}  // namespace GLOBALQ_ABI::adapt::detail
