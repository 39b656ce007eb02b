// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief peers: the interface of a peer, and its task.

#include "../support/data.hpp"

#include <globalq/kernel/executor.hpp>

#include <memory>
#include <string>
#include <vector>

namespace globalq::bench {

/// @brief The task that all peers of a run share.
struct task {
  std::uint64_t n;  ///< values
  int threads;      ///< 1: the Serial space; else the default host space
  kernel::host_executor on;
  values<float> x, other;  ///< values to encode; reduces add the codes of both
  double norm;             ///< the largest magnitude of both
};

/// @brief One implementation to time.
class peer {
 public:
  virtual ~peer() = default;
  virtual void run() = 0;
  /// The squared error of the result of run(), relative to the squared norm of the exact result.
  virtual double error() = 0;
};

/// @brief The name of a peer, and a function that constructs it for a task.
struct named_peer {
  std::string name;
  std::unique_ptr<peer> (*make)(task const&);
};

/// @brief The peers of this library.
std::vector<named_peer> library_peers();

/// @brief The published algorithms, implemented directly.
std::vector<named_peer> published_peers();

/// @brief ||y - x||^2 / ||x||^2, where x(i) and y(i) return doubles.
template <class X, class Y>
double relative_error(std::uint64_t n, X const& x, Y const& y) {
  double error = 0, power = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    error += (y(i) - x(i)) * (y(i) - x(i));
    power += x(i) * x(i);
  }
  return power > 0 ? error / power : error;
}

}  // namespace globalq::bench
