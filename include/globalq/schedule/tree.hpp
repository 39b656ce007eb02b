// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: the binomial tree, for any number of workers: up to worker 0, then down again.

#include "concept.hpp"

namespace globalq::schedule {

/// @brief 2 ceil(log2 n) rounds and the least number of additions on a path.
/// @complexity bytes sent: S (leaf) to about S ceil(log2 n) (root); height ceil(log2 n)
struct tree {
  static constexpr char const* name = "tree";
  static globalq::detail::schedule_facts facts(int workers) {
    return {name, log2_ceil(static_cast<std::uint64_t>(workers)), true, false, false};
  }
  static int parts(int) { return 1; }
  static std::vector<std::pair<int, int>> additions(int workers) {
    std::vector<std::pair<int, int>> order;
    for (int m = 1; m < workers; m *= 2)
      for (int r = 0; r + m < workers; r += 2 * m) order.emplace_back(r, r + m);
    return order;
  }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      segment const part = cut.piece(0, round);
      std::vector<source>& children = frames.sources(32);
      typename T::request arriving[32], leaving[32];
      int terms = 1, m = 1, count = 0;
      for (; m < n && (r & m) == 0; m *= 2) {
        if (r + m >= n) continue;
        int const below = std::min(m, n - r - m);
        auto const frame = frames.get(static_cast<std::size_t>(count), c.frame_bytes(part, below));
        arriving[count++] = t.recv_async(r + m, frame);
        children.push_back({frame, below, r + m});
        terms += below;
      }
      for (int k = 0; k < count; ++k) t.wait(arriving[k]);
      auto const mine = frames.get(32, c.frame_bytes(part, terms));
      c.combine(part, true, children, mine);
      std::span<std::byte> all = mine;
      if (r != 0) {
        auto up = t.send_async(r - m, std::span<std::byte const>(mine));
        all = frames.get(33, c.frame_bytes(part, n));
        auto down = t.recv_async(r - m, all);
        t.wait(up);
        t.wait(down);
      }
      int sent = 0;
      for (m /= 2; m > 0; m /= 2)
        if (r + m < n) leaving[sent++] = t.send_async(r + m, std::span<std::byte const>(all));
      source const done{all, n, 0};
      c.finish(part, {&done, 1});
      for (int k = 0; k < sent; ++k) t.wait(leaving[k]);
    }
  }
};

}  // namespace globalq::schedule
