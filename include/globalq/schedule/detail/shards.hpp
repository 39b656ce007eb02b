// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: the halves of a sharded step: every worker gets the mean of its shard; every worker gets all shards.
///
/// Shards are the segments of the layout, one a worker. See reduce_scatter_mean.hpp and all_gather.hpp.

#include "frames.hpp"

namespace globalq::schedule::detail {

/// @brief Every worker gets all frames of its shard, decodes them and adds in rank order: the bits of schedule::allgather.
/// @complexity bytes sent: S (n-1)/n; height 0
struct reduce_scatter {
  static constexpr char const* name = "reduce-scatter";
  static globalq::detail::schedule_facts facts(int) {
    return {name, 0, false, false, false, 0, true, "reduce_scatter_mean"};
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }
  static segment writes(layout const& cut, int rank) { return cut.part(rank); }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    // of a chunk: a frame from each worker, the own one among them, and one to each
    auto const in = [&](std::uint64_t round, int p) {
      return frames.get(static_cast<std::size_t>(p + 2 * n * static_cast<int>(round % 2)),
                        c.frame_bytes(cut.piece(r, round), 1));
    };
    exchange_chunks(
        t, c, cut.rounds(), in,
        [&](std::uint64_t round, auto const& send) {
          for (int k = 1; k < n; ++k) {  // each worker starts with its right neighbour: no one is flooded
            int const p = (r + k) % n;
            segment const theirs = cut.piece(p, round);
            auto const frame =
                frames.get(static_cast<std::size_t>(n + p + 2 * n * static_cast<int>(round % 2)),
                           c.frame_bytes(theirs, 1));
            c.combine(theirs, true, {}, frame);
            send(p, frame);
          }
          c.combine(cut.piece(r, round), true, {}, in(round, r));
        },
        [&](std::uint64_t round) {
          std::vector<source>& all = frames.sources(static_cast<std::size_t>(n));
          for (int p = 0; p < n; ++p) all.push_back({used(c, in(round, p), p), 1, p});
          c.finish(cut.piece(r, round), all);
        });
  }
};

/// @brief Every worker sends the frame of its shard to all; all decode the same bytes, its maker too.
/// @complexity bytes sent: S (n-1)/n; height 0
struct gather {
  static constexpr char const* name = "all-gather";
  static constexpr bool gathers = true;
  static globalq::detail::schedule_facts facts(int) {
    return {name, 0, false, false, false, 0, true, "all_gather"};
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }
  static segment reads(layout const& cut, int rank) { return cut.part(rank); }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    auto const frame_of = [&](std::uint64_t round, int p) {
      return frames.get(static_cast<std::size_t>(p + n * static_cast<int>(round % 2)),
                        c.frame_bytes(cut.piece(p, round), 1));
    };
    exchange_chunks(
        t, c, cut.rounds(), frame_of,
        [&](std::uint64_t round, auto const& send) {
          auto const mine = frame_of(round, r);
          c.combine(cut.piece(r, round), true, {}, mine);
          for (int k = 1; k < n; ++k) send((r + k) % n, mine);
        },
        [&](std::uint64_t round) {
          for (int p = 0; p < n; ++p) {
            source const one{used(c, frame_of(round, p), p), 1, p};
            c.finish(cut.piece(p, round), {&one, 1});
          }
        });
  }
};

}  // namespace globalq::schedule::detail
