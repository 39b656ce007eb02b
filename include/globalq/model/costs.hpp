// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: the costs of a machine: its links (alpha, beta) and its work on values (gamma, delta), as plain
///        numbers.

#include "../core/error.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief A worker's connection to all others.
///
/// Without other traffic, a message of m bytes from a to b takes (latency of a + latency of b) / 2 + m / min(up of a,
/// down of b); messages that a worker sends share its `up`, messages that it receives share its `down`.
struct link {
  double latency = 0;                                     ///< alpha: s
  double up = std::numeric_limits<double>::infinity();    ///< beta: bytes/s for sending
  double down = std::numeric_limits<double>::infinity();  ///< bytes/s for receiving
  int site = -1;  ///< workers of the same site (0 and up) reach each other by network::within; -1: none
};

/// @brief The links of all workers, joined by a switch or an internet that is never the bottleneck.
struct network {
  std::vector<link> links;  ///< one for each worker
  link within;              ///< between workers of one site, separate from their links to the outside
  double overhead = 0;      ///< a worker's own time for each message that it sends or receives, in s
  /// Additional latency of messages of long_from bytes and more, in s: libraries first ask the receiver.
  double long_latency = 0;
  std::uint64_t long_from = 65'536;
  /// Share of `down` that is left if messages of several workers meet at one: 1 on a good switch; TCP loses packets
  /// there.
  double crowded = 1;
  bool quick_exchange = false;  ///< small values reach all workers in ceil(log2 n) instead of n - 1 rounds

  int workers() const { return static_cast<int>(links.size()); }

  /// Returns a network whose workers are all alike.
  /// @param alpha  s; @param beta  bytes/s in each direction
  static network uniform(int workers, double alpha, double beta) {
    network all;
    all.links.assign(static_cast<std::size_t>(workers < 0 ? 0 : workers), {alpha, beta, beta});
    all.check();
    return all;
  }

  /// Draws every worker's link from @p kinds, each entry with the same probability.
  /// @determinism the same links for the same seed everywhere
  static network drawn(int workers, std::span<link const> kinds, std::uint64_t seed) {
    if (kinds.empty())
      throw configuration_error(
          "globalq: model::network: there are no links to draw from; give at least one");
    network all;
    std::mt19937_64 bits{seed};
    for (int r = 0; r < workers; ++r)
      all.links.push_back(kinds[static_cast<std::size_t>(((bits() >> 32) * kinds.size()) >> 32)]);
    all.check();
    return all;
  }

  /// @throws configuration_error, naming the worker, for an invalid latency or rate
  void check() const {
    if (links.empty())
      throw configuration_error("globalq: model::network: there are no workers; give a link for each");
    auto const refuse = [](std::string const& who, std::string const& what, double value,
                           char const* remedy) {
      throw configuration_error("globalq: model::network: " + who + ": " + what + " is " +
                                std::to_string(value) + "; " + remedy);
    };
    auto const check_link = [&](link const& l, std::string const& who) {
      if (!(l.latency >= 0) || std::isinf(l.latency))
        refuse(who, "the latency", l.latency, "give seconds, 0 or more");
      for (double const rate : {l.up, l.down})
        if (!(rate > 0)) refuse(who, "a rate", rate, "give bytes per second above 0; 1 Gbit/s is 1.25e8");
    };
    for (std::size_t r = 0; r < links.size(); ++r) check_link(links[r], "worker " + std::to_string(r));
    check_link(within, "links within a site");
    if (!(long_latency >= 0) || std::isinf(long_latency))
      refuse("all workers", "the latency of long messages", long_latency, "give seconds, 0 or more");
    if (!(crowded > 0 && crowded <= 1))
      refuse("all workers", "the share of a crowded link", crowded, "give a number above 0, at most 1");
    if (!(overhead >= 0) || std::isinf(overhead))
      refuse("all workers", "the overhead of a message", overhead, "give seconds, 0 or more");
  }
};

/// @brief The costs of an operator besides the network, for a worker: seconds for each value, and for each frame.
struct work {
  double norm = 0;    ///< the statistics of own values, before encoding
  double encode = 0;  ///< delta: own values to codes
  double reduce = 0;  ///< 1/gamma: one frame added to own values or to other frames
  double decode = 0;  ///< delta: a frame to values of the result
  double frame = 0;   ///< s for every frame that is encoded or finished, whatever its length

  /// @throws configuration_error for a time that is negative or not finite
  void check() const {
    for (double const s : {norm, encode, reduce, decode, frame})
      if (!(s >= 0) || std::isinf(s))
        throw configuration_error("globalq: model::work: a cost is " + std::to_string(s) +
                                  "; give seconds, 0 or more");
  }
};

}  // namespace GLOBALQ_ABI::model
