// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Descent with a fixed step whose iterates are points of a grid.

#include "claims.hpp"
#include "regression.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/operators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace convex {

/// @brief The points k * step of magnitude up to `unit`, k at most `levels`.
struct grid {
  double unit;
  std::uint32_t levels;
  std::uint64_t sharing = 0;  ///< values that share a random shift; 0: all of a worker's shard

  double step() const { return unit / levels; }

  /// @brief The grid with this step that reaches at least `reach`.
  /// @throws std::invalid_argument if 16 bits cannot hold it
  static grid of_step(double step, double reach) {
    double const levels = std::ceil(reach / step * (1 - 1e-12));
    if (!(levels <= std::numeric_limits<std::int16_t>::max()))
      throw std::invalid_argument("convex: iterates: a grid of step " + text(step) + " up to " + text(reach) +
                                  " has " + text(levels) +
                                  " levels, and 16 bits hold 32767; use a smaller --condition or a larger "
                                  "--coarse-step");
    return {step * levels, static_cast<std::uint32_t>(levels), 0};
  }
};

/// @brief Step of the descent, step of the grid and iterations, after which E f(x_T) is at most epsilon above the mean of
/// the best points of the coarse grid's shifts.
///
/// eta = min(3/10 epsilon alpha / sigma^2, 1), delta = eta / ceil(16 (beta/alpha)^2) coarse, step of the descent eta / beta,
/// T = 10/eta beta/alpha ln((f(x_0) - mark) / epsilon). @n
/// The proof needs E||Q(x) - x||^2 <= c E||p - x||^2, p any points of the coarse grid's shifts, with c = eta alpha^2 / 16 beta^2, and
/// has c = delta / coarse. Of random shift, whose variance is delta^2 / 12 a value, c = (delta / coarse)^2 is true, with
/// equality for the nearest points: delta = sqrt(eta) alpha / (4 beta) coarse is enough. Of coin flips, at most delta^2 / 4,
/// c = 3 (delta / coarse)^2 is.
/// @source Markov 2024 (thesis), Theorem 2, Corollary 3 and Lemma 4
struct iterates_plan {
  double eta;
  double delta;         ///< as published
  double enough_shift;  ///< with c = (delta / coarse)^2
  double enough_coins;  ///< with c = 3 (delta / coarse)^2
  std::uint64_t iterations;

  /// @param variance  sigma^2: of the gradients, E||g - grad f||^2
  /// @param start     f(x_0) - mark
  iterates_plan(double alpha, double beta, double coarse, double variance, double epsilon, double start)
      : eta(variance > 0 ? std::min(0.3 * epsilon * alpha / variance, 1.0) : 1.0),
        delta(eta * coarse / std::ceil(16 * (beta / alpha) * (beta / alpha))),
        enough_shift(std::sqrt(eta) * coarse * alpha / (4 * beta)),
        enough_coins(enough_shift / std::sqrt(3.0)),
        iterations(
            static_cast<std::uint64_t>(std::ceil(10 / eta * beta / alpha * std::log(start / epsilon)))) {}
};

/// @brief The limit of the gap in the long run, for f with a diagonal Hessian, a fixed step and gradients with noise.
///
/// A value's distance z from its optimum becomes (1 - a) z + e with a = step times curvature, and E e = 0 whatever z is; so if
/// e has the variance V, E z^2 tends to V / (1 - (1 - a)^2).
struct long_run {
  VectorXd const& curvatures;
  double step;   ///< of the descent
  double noise;  ///< variance of a value of the gradient
  double delta;  ///< step of the grid

  /// Roundings with this variance, in delta^2, wherever a value lies.
  double of_variance(double v) const {
    double gap = 0;
    for (double h : curvatures)
      gap += h / 2 * (v * delta * delta + step * step * noise) / (step * h * (2 - step * h));
    return gap;
  }
  /// Random shift: 1/12. (*Erratum:* the published variance, {v/delta} (1 - {v/delta}), belongs to the next two.)
  double shift() const { return of_variance(1.0 / 12); }

  /// @brief Coin flips, if noise spreads values evenly between points: the mean of t (1 - t), 1/6.
  double coins_with_noise() const { return of_variance(1.0 / 6); }

  /// @brief Coin flips with exact gradients: delta^2 o (1 - o) a value, o delta the distance from the point below the optimum.
  ///
  /// A value ends on one of the two points beside its optimum and changes between them with probabilities a o (up) and
  /// a (1 - o) (down): it is above for a share o of the time. The step does not matter.
  double coins(VectorXd const& optimum) const {
    double gap = 0;
    for (Index k = 0; k < optimum.size(); ++k) {
      double const o = optimum(k) / delta - std::floor(optimum(k) / delta);
      gap += curvatures(k) / 2 * delta * delta * o * (1 - o);
    }
    return gap;
  }

  /// Rounding to nearest with exact gradients: at most this, as a value stays where a |z| <= delta / 2.
  double nearest_at_most() const {
    double gap = 0;
    for (double h : curvatures) gap += h / 2 * delta * delta / (4 * step * h * step * h);
    return gap;
  }
};

/// @brief The result of a run, at rank 0.
struct iterates_run {
  double last = 0;          ///< gap at the end
  double mean = 0;          ///< of the gaps of the last steps
  std::uint64_t bytes = 0;  ///< sent by this worker
};

/// @brief x <- Q(x - step g) on one worker; all workers call it with the same arguments and hold the same x.
///
/// Each step gives each worker its shard of the mean gradient, and all workers the rounded shards of x.
/// @param gradients  the operator for gradients
/// @param rounding   Q: rounding::random_shift, stochastic or nearest, on the grid
/// @param wire       of the codes of x
/// @param average    steps at the end whose gaps are averaged
template <class Transport, class Gradients, class Rounding, class Wire>
iterates_run iterate(Transport& workers, diagonal_regression const& problem, Gradients const& gradients,
                     grid const& points, Rounding rounding, Wire wire, double step, std::uint64_t steps,
                     std::uint64_t average, std::uint64_t seed) {
  namespace gq = globalq;
  auto const size = static_cast<std::uint64_t>(problem.f.values());
  share const own(problem.f.samples(), workers.rank(), workers.size());
  // two seeds, so that the roundings of gradients and of x are independent
  gq::reduce_scatter_mean mean{workers, gradients, {.seed = 2 * seed}};
  gq::all_gather gather{workers,
                        gq::quantizer{gq::norm::fixed{points.unit, points.sharing},
                                      gq::levels::uniform<>{points.levels}, rounding, wire},
                        {.seed = 2 * seed + 1}};
  gq::segment const shard = mean.shard(size);

  std::vector<float> x(size, 0.0F), g(size);
  iterates_run run;
  for (std::uint64_t t = 0; t < steps; ++t) {
    VectorXd const at = Eigen::Map<Eigen::VectorXf const>(x.data(), problem.f.values()).cast<double>();
    VectorXd const gradient = problem.f.gradient(at, own.first, own.count);
    for (std::uint64_t k = 0; k < size; ++k) g[k] = static_cast<float>(gradient(static_cast<Index>(k)));
    mean(std::span(g), t);
    for (std::uint64_t k = shard.first; k < shard.first + shard.count; ++k)
      x[k] = static_cast<float>(static_cast<double>(x[k]) - step * static_cast<double>(g[k]));
    gather(std::span(x), t);
    if (workers.rank() == 0 && t + average >= steps) {
      run.last = problem.gap(Eigen::Map<Eigen::VectorXf const>(x.data(), problem.f.values()).cast<double>());
      run.mean += run.last / static_cast<double>(average);
    }
  }
  run.bytes = workers.bytes_sent();
  return run;
}

}  // namespace convex
