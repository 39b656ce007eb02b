// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: binomial tree, for any number of workers: sums travel up to worker 0, and the result down again.

#include "concept.hpp"
#include "detail/piece_sizes.hpp"

#include <algorithm>
#include <bit>

namespace GLOBALQ_ABI::schedule {

/// @brief 2 ceil(log2 n) steps and the fewest additions on a path.
/// @complexity bytes sent: S (leaf) to about S ceil(log2 n) (root); height ceil(log2 n)
struct tree {
  static constexpr char const* name = "tree";
  static globalq::detail::schedule_facts facts(int workers) {
    globalq::detail::schedule_facts f{name, log2_ceil(static_cast<std::uint64_t>(workers)), true, false,
                                      false};
    f.chunks_wait = true;
    return f;
  }
  static int parts(int) { return 1; }
  static std::vector<std::pair<int, int>> additions(int workers) {
    std::vector<std::pair<int, int>> order;
    for (int m = 1; m < workers; m *= 2)
      for (int r = 0; r + m < workers; r += 2 * m) order.emplace_back(r, r + m);
    return order;
  }
  /// The first worker in a sum that @p maker sent up; the others follow it.
  static int first_of_sum(int, int maker, int) { return maker; }
  /// The worker to which worker @p place > 0 sends its sum; for schedule::hierarchical.
  static int parent(int place) { return place & (place - 1); }

  /// Bytes that a worker sends: its sum to its parent, and the complete sum to its children.
  static std::uint64_t sent(detail::piece_sizes const& all, int workers, int rank) {
    return all.of(0) * static_cast<std::uint64_t>(children_of(workers, rank) + (rank != 0));
  }
  /// Sizes of a worker's frames, slot by slot.
  static void hold(detail::piece_sizes const& all, int workers, int rank, detail::slot_sizes& frames) {
    std::uint64_t const window = window_of(workers),
                        below = static_cast<std::uint64_t>(children_of(workers, rank));
    for (std::uint64_t k = 0; k < std::min(window, all.rounds()); ++k) {
      std::uint64_t const bytes = all.run_of(0).largest(window, k);
      frames.hold((most + 2) * k, below, bytes);
      frames.hold((most + 2) * k + most, rank == 0 ? 1 : 2, bytes);
    }
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    std::uint64_t const rounds = cut.rounds();
    int child[most], below[most], children = 0, terms = 1, parent = 1;
    for (; parent < n && (r & parent) == 0; parent *= 2) {
      if (r + parent >= n) continue;
      child[children] = r + parent;
      below[children] = std::min(parent, n - r - parent);
      terms += below[children++];
    }
    detail::transfers<T> under_way;
    std::uint64_t const window = window_of(n);
    auto const slot = [&](std::uint64_t round, std::size_t i) { return i + (most + 2) * (round % window); };
    auto const up_set = [](std::uint64_t round) { return static_cast<int>(round % 2); };
    auto const down_set = [&](std::uint64_t round) { return static_cast<int>(2 + round % window); };
    auto const frame_of = [&](std::uint64_t round, int k) {
      return frames.get(slot(round, static_cast<std::size_t>(k)),
                        c.frame_bytes(cut.piece(0, round), below[k]));
    };
    auto const whole = [&](std::uint64_t round) {
      return frames.get(slot(round, r == 0 ? most : most + 1), c.frame_bytes(cut.piece(0, round), n));
    };

    auto const expect = [&](std::uint64_t round) {
      for (int k = 0; k < children; ++k) under_way.recv(t, child[k], frame_of(round, k), up_set(round));
    };
    auto const add = [&](std::uint64_t round) {
      segment const part = cut.piece(0, round);
      under_way.wait_all(t, up_set(round));
      std::vector<source>& sources = frames.sources(most);
      for (int k = 0; k < children; ++k) sources.push_back({frame_of(round, k), below[k], child[k]});
      auto const mine = frames.get(slot(round, most), c.frame_bytes(part, terms));
      under_way.wait_all(t, down_set(round));  // a window ago, messages were sent from these frames
      c.combine(part, true, sources, mine);
      if (r == 0) return;
      under_way.recv(t, r - parent, whole(round), down_set(round));
      under_way.send(t, r - parent, mine, down_set(round));
    };
    auto const finish = [&](std::uint64_t round) {
      segment const part = cut.piece(0, round);
      under_way.wait_all(t, down_set(round));
      auto const all = whole(round);
      for (int k = children; k-- > 0;) under_way.send(t, child[k], all, down_set(round));
      source const done{all, n, 0};
      c.finish(part, {&done, 1});
    };

    // Worker 0 has the complete sum at once. The others process as many further chunks before they wait for it as it
    // takes up and down again. Workers near worker 0 wait less; otherwise workers below would receive theirs only at
    // their window's end.
    std::uint64_t const above = static_cast<std::uint64_t>(std::popcount(static_cast<unsigned>(r)));
    std::uint64_t const behind = r == 0 ? 0 : std::min({2 * above + 1, window - 1, rounds});
    if (rounds != 0) expect(0);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) expect(round + 1);
      add(round);
      if (round >= behind) finish(round - behind);
    }
    for (std::uint64_t round = rounds - std::min(behind, rounds); round < rounds; ++round) finish(round);
    for (std::uint64_t round = rounds - std::min(window, rounds); round < rounds; ++round)
      under_way.wait_all(t, down_set(round));
  }

 private:
  static constexpr std::size_t most = 32;  ///< children; then come this worker's sum and the complete one

  static int children_of(int workers, int rank) {
    int count = 0;
    for (int below = 1; below < workers && (rank & below) == 0; below *= 2) count += rank + below < workers;
    return count;
  }
  /// Chunks in flight: as many as there are steps up to worker 0 and down again, so that no chunk waits for the
  /// previous one.
  static std::uint64_t window_of(int workers) {
    return std::min<std::uint64_t>(
        2 * static_cast<std::uint64_t>(log2_ceil(static_cast<std::uint64_t>(workers))) + 2,
        detail::most_sets - 2);
  }
};

}  // namespace GLOBALQ_ABI::schedule
