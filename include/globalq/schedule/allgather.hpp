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
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      segment const part = cut.piece(0, round);
      std::size_t const bytes = c.frame_bytes(part, 1);
      std::vector<source>& all = frames.sources(static_cast<std::size_t>(n));
      for (int p = 0; p < n; ++p) {
        auto const frame = frames.get(static_cast<std::size_t>(p), bytes);
        if (p != r) under_way.recv(t, p, frame);
        all.push_back({frame, 1, p});
      }
      auto const mine = frames.get(static_cast<std::size_t>(r), bytes);
      c.combine(part, true, {}, mine);
      for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, mine);
      under_way.wait_all(t);
      c.finish(part, all);
    }
  }
};

}  // namespace globalq::schedule
