// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom schedule: all frames go to worker 0, which adds them and sends the sum to everyone.

//! [funnel]
#include <globalq/schedule/concept.hpp>

/// Works like a parameter server. For few workers.
struct funnel {
  static constexpr char const* name = "funnel";
  /// Height: worker 0 adds the frames of all others to one sum, one after the other.
  static globalq::detail::schedule_facts facts(int workers) { return {name, workers - 1, true, false, true}; }
  static int parts(int /*workers*/) { return 1; }  // segments per vector
  static std::vector<std::pair<int, int>> additions(int workers) {
    std::vector<std::pair<int, int>> all;  // (into, from), in order
    for (int r = 1; r < workers; ++r) all.emplace_back(0, r);
    return all;
  }

  template <globalq::Transport T>
  void operator()(T& t, globalq::codec& c, globalq::partition const& cut, globalq::frame_pool& frames) const {
    int const n = t.size(), root = 0;
    auto const done = [&t](typename T::request posted) { t.wait(posted); };
    for (std::uint64_t chunk = 0; chunk < cut.rounds(); ++chunk) {
      globalq::segment const part = cut.piece(0, chunk);
      auto const sum = frames.get(0, c.frame_bytes(part, n));
      std::vector<globalq::source>& arrived = frames.sources(static_cast<std::size_t>(n));
      auto const frame = [&](int of) { return frames.get(1U + of, c.frame_bytes(part, 1)); };
      if (t.rank() != root) {
        c.combine(part, true, {}, frame(t.rank()));  // own values, encoded
        done(t.send_async(root, frame(t.rank())));
        done(t.recv_async(root, sum));
      } else {
        for (int r = 1; r < n; ++r) done(t.recv_async(r, frame(r)));
        for (int r = 1; r < n; ++r) arrived.push_back({frame(r), 1, r});
        c.combine(part, true, arrived, sum);
        for (int r = 1; r < n; ++r) done(t.send_async(r, sum));
      }
      globalq::source const result{sum, n, root};
      c.finish(part, {&result, 1});  // all workers decode the same bytes
    }
  }
};

static_assert(globalq::Schedule<funnel>);
//! [funnel]
