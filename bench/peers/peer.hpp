// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief peers: something that is timed, and what it works on.

#include "../support/data.hpp"

#include <globalq/kernel/executor.hpp>

#include <memory>
#include <string>
#include <vector>

namespace globalq::bench {

/// @brief What all peers of a run share.
struct task {
  std::uint64_t n;  ///< values
  int threads;      ///< 1: the Serial space; else the default host space
  kernel::host_executor on;
  values<float> x, other;  ///< what is encoded; for reduces, what both codes stand for
  double norm;             ///< the largest magnitude of both
};

/// @brief One way to do something.
class peer {
 public:
  virtual ~peer() = default;
  virtual void run() = 0;
  /// The squared error of what run() made, relative to the squared norm of what it should be.
  virtual double error() = 0;
};

/// @brief A peer by its name, made for a task.
struct named_peer {
  std::string name;
  std::unique_ptr<peer> (*make)(task const&);
};

/// @brief What this library does.
std::vector<named_peer> library_peers();

/// @brief The published algorithms, written plainly.
std::vector<named_peer> published_peers();

/// @brief ||y - x||^2 / ||x||^2, x(i) and y(i) being doubles.
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
