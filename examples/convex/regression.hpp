// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The problem: least squares with a known optimum, split over the workers by samples.

#include <Eigen/Dense>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

namespace convex {

using Eigen::Index;
using Eigen::VectorXd;
using row_matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// @brief f(x) = 1/m sum_j f_j(x), f_j(x) = (a_j . x - b_j)^2 / 2 + ridge / 2 ||x||^2, with its constants for the
/// theory.
///
/// The optimum comes from a direct solve in double, refined once. Values of f are returned as gaps above f(optimum),
/// computed from the distance to it, so that even a gap of 1e-25 is accurate.
class regression {
 public:
  /// @param features  a_j, one a row
  /// @param targets   b_j
  /// @pre the Hessian is positive definite
  regression(row_matrix features, VectorXd targets, double ridge)
      : features_(std::move(features)), targets_(std::move(targets)), ridge_(ridge) {
    double const m = static_cast<double>(samples());
    Eigen::MatrixXd hessian = Eigen::MatrixXd::Identity(values(), values()) * ridge_;
    hessian.selfadjointView<Eigen::Lower>().rankUpdate(features_.transpose(), 1 / m);
    Eigen::LLT<Eigen::MatrixXd, Eigen::Lower> const solver(hessian);
    optimum_ = solver.solve(features_.transpose() * targets_ / m);
    optimum_ -= solver.solve(gradient(optimum_, 0, samples()));
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> const spectrum(hessian, Eigen::EigenvaluesOnly);
    least_ = spectrum.eigenvalues()(0);
    most_ = spectrum.eigenvalues()(values() - 1);
  }

  Index values() const { return features_.cols(); }
  Index samples() const { return features_.rows(); }
  VectorXd const& optimum() const { return optimum_; }

  /// The strong convexity of f.
  double strong_convexity() const { return least_; }
  /// The smoothness of f.
  double smoothness() const { return most_; }
  /// The smoothness of every f_j.
  double smoothness_of_each() const { return features_.rowwise().squaredNorm().maxCoeff() + ridge_; }

  /// f(x) - f(optimum).
  double gap(VectorXd const& x) const {
    VectorXd const away = x - optimum_;
    return ((features_ * away).squaredNorm() / static_cast<double>(samples()) + ridge_ * away.squaredNorm()) /
           2;
  }

  /// The gradient of f_j.
  VectorXd gradient_of(Index j, VectorXd const& x) const {
    return features_.row(j).transpose() * (features_.row(j).dot(x) - targets_(j)) + ridge_ * x;
  }

  /// The gradient of the mean of f_j over samples [first, first + count).
  VectorXd gradient(VectorXd const& x, Index first, Index count) const {
    auto const rows = features_.middleRows(first, count);
    VectorXd const errors = rows * x - targets_.segment(first, count);
    return rows.transpose() * errors / static_cast<double>(count) + ridge_ * x;
  }

 private:
  row_matrix features_;
  VectorXd targets_;
  double ridge_;
  VectorXd optimum_;
  double least_ = 0, most_ = 0;
};

/// @brief The samples of a worker: equal shares, so that the mean of the workers' means is the mean.
/// @pre the workers divide the samples
struct share {
  Index first, count;
  share(Index samples, int rank, int workers) : first(samples / workers * rank), count(samples / workers) {}
};

/// @brief Normal numbers from std::mt19937_64 by Box and Muller: the same with every standard library.
class normals {
 public:
  explicit normals(std::uint64_t seed) : bits_(seed) {}
  double operator()() {
    double const radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 bits_;
};

/// @brief Features of length 1 whose k-th value shrinks as k^(-1/2), and targets with noise: no x fits all samples.
/// @determinism a pure function of its arguments
inline regression random_regression(Index values, Index samples, double ridge, std::uint64_t seed) {
  normals normal(seed);
  row_matrix features(samples, values);
  for (Index j = 0; j < samples; ++j) {
    for (Index k = 0; k < values; ++k) features(j, k) = normal() / std::sqrt(static_cast<double>(k + 1));
    features.row(j) /= features.row(j).norm();
  }
  VectorXd truth(values), targets(samples);
  for (double& x : truth) x = normal();
  targets = features * truth;
  for (double& b : targets) b += normal() / 2;
  return {std::move(features), std::move(targets), ridge};
}

/// @brief A regression with a diagonal Hessian, for which the best point of a grid is known.
struct diagonal_regression {
  regression f;
  VectorXd curvatures;  ///< the diagonal: from 1 down to 1 / condition, evenly in their logarithms

  /// f(x) - f(optimum), faster than f.gap(x).
  double gap(VectorXd const& x) const { return (x - f.optimum()).cwiseAbs2().dot(curvatures) / 2; }

  /// @brief The mean gap of the best points of the grids of this step shifted by r, over all r.
  ///
  /// The best point is the nearest one, value by value, and its distance is uniform in half a step.
  double best_of_grid(double step) const { return curvatures.sum() / 2 * step * step / 12; }
};

/// @brief Features are the rows of a Hadamard matrix in random order, with random signs: columns are orthogonal over all
/// samples, though not over those of one worker. The optimum is uniform in [-1, 1], value by value.
/// @param values  a power of two; so are the samples, at least as many
/// @determinism a pure function of its arguments
inline diagonal_regression make_diagonal_regression(Index values, Index samples, double condition,
                                                    std::uint64_t seed) {
  normals random(seed);
  VectorXd curvatures(values), truth(values);
  for (Index k = 0; k < values; ++k)
    curvatures(k) = std::pow(condition, -static_cast<double>(k) / static_cast<double>(values - 1));
  for (double& x : truth) x = 2 * random.unit() - 1;
  std::vector<std::uint64_t> order(static_cast<std::size_t>(samples));
  for (std::size_t j = 0; j < order.size(); ++j) order[j] = j;
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[static_cast<std::size_t>(random.unit() * static_cast<double>(left))]);
  row_matrix features(samples, values);
  for (Index j = 0; j < samples; ++j) {
    double const sign = random.unit() < 0.5 ? -1 : 1;
    std::uint64_t const row = order[static_cast<std::size_t>(j)];
    for (Index k = 0; k < values; ++k)
      features(j, k) = (std::popcount(row & static_cast<std::uint64_t>(k)) % 2 == 0 ? sign : -sign) *
                       std::sqrt(curvatures(k));
  }
  VectorXd const targets = features * truth;
  return {{std::move(features), targets, 0.0}, curvatures};
}

}  // namespace convex
