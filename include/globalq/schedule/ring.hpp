// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: the ring: each segment collects one worker after the other, then travels round once more.

#include "concept.hpp"

namespace globalq::schedule {

/// @brief 2(n-1) messages of a segment each; the least bytes, the longest chain of additions.
/// @complexity bytes sent: 2 S (n-1)/n; height n-1
struct ring {
  static constexpr char const* name = "ring";
  static globalq::detail::schedule_facts facts(int workers) {
    return {name, workers - 1, true, false, false};
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int workers) { return detail::chain(workers); }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank(), right = (r + 1) % n, left = (r + n - 1) % n;
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      auto const piece = [&](int i) { return cut.piece((i % n + n) % n, round); };
      std::size_t slot = 0;  // two frames: one arrives while the other leaves
      auto current = frames.get(slot, c.frame_bytes(piece(r - 1), 1));
      c.combine(piece(r - 1), true, {}, current);
      for (int k = 1; k < n; ++k) {
        segment const part = piece(r - 1 - k);
        auto const arriving = frames.get(2, c.frame_bytes(part, k));
        auto incoming = detail::recv(t, left, arriving);
        auto outgoing = detail::send(t, right, std::span<std::byte const>(current));
        t.wait(incoming);
        source const from{arriving, k, left};
        auto const next = frames.get(1 - slot, c.frame_bytes(part, k + 1));
        c.combine(part, true, {&from, 1}, next);
        t.wait(outgoing);
        slot = 1 - slot;
        current = next;
      }
      int const mine = n == 1 ? r - 1 : r;  // the segment that this worker completed
      source done{current, n, r};
      c.finish(piece(mine), {&done, 1});
      for (int k = 1; k < n; ++k) {
        int const i = ((r - k) % n + n) % n;
        auto const arriving = frames.get(1 - slot, c.frame_bytes(piece(i), n));
        auto incoming = detail::recv(t, left, arriving);
        auto outgoing = detail::send(t, right, std::span<std::byte const>(current));
        t.wait(incoming);
        done = {arriving, n, i};
        c.finish(piece(i), {&done, 1});
        t.wait(outgoing);
        slot = 1 - slot;
        current = arriving;
      }
    }
  }
};

}  // namespace globalq::schedule
