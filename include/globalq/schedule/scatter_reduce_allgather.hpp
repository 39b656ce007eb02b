// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: every worker adds one segment of all others and sends the sum to all.

#include "concept.hpp"

namespace globalq::schedule {

/// @brief Two rounds of n-1 messages; all frames of a segment meet at one worker, so one encoding serves them all.
/// @complexity bytes sent: 2 S (n-1)/n; height n-1 for the exponential reduce (rank order), one encoding when requantising
/// @source Markov 2024 (thesis), chapter 3 (CGX); Thakur et al. 2005
struct scatter_reduce_allgather {
  static constexpr char const* name = "sra";
  static globalq::detail::schedule_facts facts(int workers) { return {name, workers - 1, true, false, true}; }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int workers) { return detail::chain(workers); }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    auto const slots = static_cast<std::size_t>(n);
    detail::transfers<T> under_way;
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      auto const piece = [&](int i) { return cut.piece(i, round); };
      segment const mine = piece(r);
      std::vector<source>& arrived = frames.sources(slots);
      for (int p = 0; p < n; ++p) {
        if (p == r) continue;
        auto const frame = frames.get(static_cast<std::size_t>(p), c.frame_bytes(mine, 1));
        under_way.recv(t, p, frame);
        arrived.push_back({frame, 1, p});
      }
      for (int k = 1; k < n; ++k) {  // each worker starts with its right neighbour: no one is flooded
        int const p = (r + k) % n;
        auto const frame = frames.get(slots + static_cast<std::size_t>(p), c.frame_bytes(piece(p), 1));
        c.combine(piece(p), true, {}, frame);
        under_way.send(t, p, frame);
      }
      under_way.wait_all(t);
      auto const sum = frames.get(2 * slots, c.frame_bytes(mine, n));
      c.combine(mine, true, arrived, sum);
      auto const theirs = [&](int p) {
        return frames.get(static_cast<std::size_t>(p), c.frame_bytes(piece(p), n));
      };
      for (int p = 0; p < n; ++p)
        if (p != r) under_way.recv(t, p, theirs(p));
      for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, sum);
      source done{sum, n, r};
      c.finish(mine, {&done, 1});
      std::size_t arrival = 0;
      for (int p = 0; p < n; ++p) {
        if (p == r) continue;
        under_way.wait(t, arrival++);
        done = {theirs(p), n, p};
        c.finish(piece(p), {&done, 1});
      }
      under_way.wait_all(t);
    }
  }
};

using sra = scatter_reduce_allgather;

}  // namespace globalq::schedule
