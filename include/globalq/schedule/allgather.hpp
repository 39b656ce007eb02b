// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: everyone gets every frame, decodes all and adds in rank order.

#include "concept.hpp"

namespace globalq::schedule {

/// @brief One round; no rounding but the workers' own, so the least variance; bytes grow with the workers.
/// @complexity bytes sent: S (n-1); height 0
struct allgather {
  static constexpr char const* name = "allgather";
  static globalq::detail::schedule_facts facts(int) { return {name, 0, false, false, false}; }
  static int parts(int) { return 1; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    detail::transfers<T> under_way;
    auto const frame_of = [&](int p, std::uint64_t round) {
      return frames.get(static_cast<std::size_t>(p + n * static_cast<int>(round % 2)),
                        c.frame_bytes(cut.piece(0, round), 1));
    };
    auto const start = [&](std::uint64_t round) {
      if (round >= cut.rounds()) return;
      int const set = static_cast<int>(round % 2);
      for (int p = 0; p < n; ++p)
        if (p != r) under_way.recv(t, p, frame_of(p, round), set);
      auto const mine = frame_of(r, round);
      c.combine(cut.piece(0, round), true, {}, mine);
      for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, mine, set);
    };
    start(0);
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      start(round + 1);
      under_way.wait_all(t, static_cast<int>(round % 2));
      std::vector<source>& all = frames.sources(static_cast<std::size_t>(n));
      for (int p = 0; p < n; ++p) all.push_back({frame_of(p, round), 1, p});
      c.finish(cut.piece(0, round), all);
    }
  }
};

}  // namespace globalq::schedule
