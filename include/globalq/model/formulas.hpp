// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: closed formulas: the cost of a schedule in alpha, beta, gamma and delta, and when compression is
///        faster.
///
/// Predictions for a run come from simulation.hpp, which runs the schedules' own code. These formulas hold if nothing
/// overlaps and all workers are alike; they show how costs grow, and tests compare the simulation with them.

#include "../core/error.hpp"

#include <cmath>
#include <limits>
#include <string>

namespace GLOBALQ_ABI::model {

/// @brief The parameters of a machine.
struct parameters {
  double alpha = 0;                                        ///< latency of a message: s
  double beta = std::numeric_limits<double>::infinity();   ///< bandwidth: bytes/s
  double gamma = std::numeric_limits<double>::infinity();  ///< additions: bytes of one operand/s

  /// @throws configuration_error if a parameter is out of range
  void check() const {
    if (!(alpha >= 0) || !(beta > 0) || !(gamma > 0))
      throw configuration_error("globalq: model::parameters: alpha " + std::to_string(alpha) + " s, beta " +
                                std::to_string(beta) + " bytes/s, gamma " + std::to_string(gamma) +
                                " bytes/s; give alpha of 0 or more, and beta and gamma above 0");
  }
};

/// ceil(log2 n): the levels of a tree.
constexpr int tree_levels(int workers) {
  int levels = 0;
  while ((1LL << levels) < workers) ++levels;
  return levels;
}

namespace detail {
inline double checked_bytes(int workers, double bytes, parameters const& p) {
  p.check();
  if (workers < 1 || !(bytes >= 0))
    throw configuration_error("globalq: model: " + std::to_string(workers) + " workers and " +
                              std::to_string(bytes) + " bytes; give 1 worker or more, and 0 bytes or more");
  return bytes;
}
}  // namespace detail

/// @name Seconds of one sum over n workers, whose vectors take S bytes on the wire
/// @{

/// @brief 2 L alpha + 2 L S/beta + L S/gamma, L = ceil(log2 n).
/// @source Xin et al. (Global-QSGD), section 5. schedule::tree adds a worker's children at once, after the last has
///         arrived:
/// its longest path has L (L+1)/2 additions instead of L.
inline double tree_seconds(int workers, double bytes, parameters const& p) {
  double const s = detail::checked_bytes(workers, bytes, p), levels = tree_levels(workers);
  return levels * (2 * p.alpha + 2 * s / p.beta + s / p.gamma);
}
/// @brief 2 (n-1) (alpha + S/(n beta)) + (n-1) S/(n gamma).
inline double ring_seconds(int workers, double bytes, parameters const& p) {
  double const piece = detail::checked_bytes(workers, bytes, p) / workers, hops = workers - 1;
  return hops * (2 * p.alpha + 2 * piece / p.beta + piece / p.gamma);
}
/// @brief 2 alpha + 2 (n-1) S/(n beta) + (n-1) S/(n gamma); no alpha for one worker.
inline double scatter_reduce_allgather_seconds(int workers, double bytes, parameters const& p) {
  double const piece = detail::checked_bytes(workers, bytes, p) / workers, others = workers - 1;
  return (workers > 1 ? 2 * p.alpha : 0) + others * (2 * piece / p.beta + piece / p.gamma);
}
/// @brief alpha + (n-1) S/beta; frames that arrive are decoded, not added.
inline double allgather_seconds(int workers, double bytes, parameters const& p) {
  double const s = detail::checked_bytes(workers, bytes, p);
  return workers > 1 ? p.alpha + (workers - 1) * s / p.beta : 0;
}
/// @}

/// @brief The parameters of compression.
struct compression {
  double rho = 4;    ///< bytes of float32 over bytes on the wire
  double omega = 1;  ///< speed of adding codes over that of adding float32, both in bytes/s: gamma-hat/gamma
  double delta = 0;  ///< encoding and decoding: s for each byte of float32

  /// @throws configuration_error if a parameter is out of range
  void check() const {
    if (!(rho > 0) || !(omega > 0) || !(delta >= 0))
      throw configuration_error("globalq: model::compression: rho " + std::to_string(rho) + ", omega " +
                                std::to_string(omega) + ", delta " + std::to_string(delta) +
                                "; give rho and omega above 0, and delta of 0 or more");
  }
};

/// @brief The bandwidth below which compression is faster on a tree: infinity if it is on any network, 0 if on none.
///
/// 2 L (1 - 1/rho) / (delta - L (1 - 1/(rho omega)) / gamma), which is 2 omega (rho-1) gamma / (1 - omega rho) for
/// delta = 0: then compression is faster on any network if omega >= 1/rho; with encoding counted, if
/// L (1 - 1/(rho omega)) / gamma >= delta.
/// @param levels  L = tree_levels(workers), at least 1; has no effect if delta is 0
/// @param gamma   additions of float32: bytes of one operand/s
/// @source Xin et al. (Global-QSGD), section 5 and appendix A.4, which define omega = gamma/gamma-hat and use its
///         inverse
inline double winning_bandwidth(int levels, double gamma, compression const& c) {
  c.check();
  if (levels < 1 || !(gamma > 0))
    throw configuration_error("globalq: model::winning_bandwidth: " + std::to_string(levels) +
                              " levels and gamma " + std::to_string(gamma) +
                              "; give at least 1 level (2 workers) and a gamma above 0");
  double const saved = 2.0 * levels * (1 - 1 / c.rho);  // over beta: s saved for each byte of float32
  // extra work for each byte, in s; 1/omega is added first so that omega = 1/rho gives 0 exactly
  double const spent = c.delta + levels * ((1 / c.omega - c.rho) / c.rho) / gamma;
  if (saved > 0) return spent <= 0 ? std::numeric_limits<double>::infinity() : saved / spent;
  // more bytes than float32: compression loses on slow networks, so there is no upper bound on the bandwidth to return
  return 0;
}

}  // namespace GLOBALQ_ABI::model
