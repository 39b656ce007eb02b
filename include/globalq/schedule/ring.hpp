// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: ring: each segment travels around once to add all workers' values, and once to distribute the sum.

#include "concept.hpp"
#include "detail/piece_sizes.hpp"

namespace GLOBALQ_ABI::schedule {

/// @brief Each worker sends 2(n-1) messages of one segment, in chunks: the fewest bytes, but the longest chain of
/// additions.
/// @complexity bytes sent: 2 S (n-1)/n; height n-1
struct ring {
  static constexpr char const* name = "ring";
  static globalq::detail::schedule_facts facts(int workers) {
    return {name, workers - 1, true, false, false};
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int workers) { return detail::chain(workers); }
  /// The first worker in a sum of @p terms that @p maker sent; the others follow it, cyclically.
  static int first_of_sum(int workers, int maker, int terms) {
    return (maker - terms + 1 + workers) % workers;
  }

  /// Bytes that a worker sends: all segments in hops 0 .. n-1, and all but two in the others.
  static std::uint64_t sent(detail::piece_sizes const& all, int workers, int rank) {
    return workers == 1 ? 0 : 2 * all.all() - all.of(rank) - all.of((rank + 1) % workers);
  }
  /// Upper bound of a worker's frames: which frames share a slot depends on how often each slot is used.
  static void hold(detail::piece_sizes const& all, int workers, int, detail::slot_sizes& frames) {
    if (all.rounds() == 0) return;
    std::uint64_t const slots = slots_of(all.rounds()),
                        arrivals =
                            std::min(slots, 2 * static_cast<std::uint64_t>(workers - 1) * all.rounds());
    all.hold_largest(slots - arrivals, arrivals, 2, frames);
    all.hold_largest(slots, slots, 1, frames);
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank(), right = (r + 1) % n, left = (r + n - 1) % n;
    std::uint64_t const chunks = cut.rounds();
    // Work is a sequence of items, by groups of chunks, then by hops, then by chunks. Hop 0 encodes; hops 1 .. n-1 add
    // what arrives, and the last of these completes a segment; hops n .. 2n-2 forward complete segments. The input of
    // an item was sent one hop earlier; while it travels, the other chunks of the group are processed. There are at
    // least as many slots as chunks in a group; otherwise all workers could wait for their right neighbors.
    constexpr std::uint64_t most_slots = group + ahead + 1;
    std::uint64_t const slots = slots_of(chunks);
    std::uint64_t const hops = static_cast<std::uint64_t>(2 * n - 1), items = hops * chunks;
    typename T::request arriving[most_slots], leaving[most_slots];
    struct item {
      int hop;
      segment part;
      int owner;
    };
    auto const at = [&](std::uint64_t j) {
      std::uint64_t const first = j / (hops * group) * group, in_group = j - hops * first;
      std::uint64_t const width = std::min(group, chunks - first);
      int const hop = static_cast<int>(in_group / width), owner = ((r - 1 - hop) % n + n) % n;
      return item{hop, cut.piece(owner, first + in_group % width), owner};
    };
    auto const arrival = [&](std::uint64_t j, item const& i) {
      return frames.get(j % slots, c.frame_bytes(i.part, std::min(i.hop, n)));
    };
    std::uint64_t expected = 0;
    for (std::uint64_t j = 0; j < items; ++j) {
      for (; expected < items && expected <= j + ahead; ++expected) {
        item const next = at(expected);
        if (next.hop == 0) continue;
        t.wait(leaving[expected % slots]);  // the slot's frame may still be in transfer
        arriving[expected % slots] = detail::recv(t, left, arrival(expected, next));
      }
      item const i = at(j);
      std::span<std::byte> frame;
      if (i.hop != 0) {
        t.wait(arriving[j % slots]);
        frame = arrival(j, i);
      }
      if (i.hop < n) {
        source const from{frame, i.hop, left};
        t.wait(leaving[j % slots]);
        frame = frames.get(slots + j % slots, c.frame_bytes(i.part, i.hop + 1));
        c.combine(i.part, true, std::span(&from, i.hop == 0 ? 0U : 1U), frame);
      }
      if (i.hop < 2 * n - 2) leaving[j % slots] = detail::send(t, right, std::span<std::byte const>(frame));
      if (i.hop >= n - 1) {
        source const done{frame, n, n == 1 ? r : i.owner};
        c.finish(i.part, {&done, 1});
      }
    }
    for (auto& q : leaving) t.wait(q);
  }

 private:
  static constexpr std::uint64_t group = 4, ahead = 2;
  static std::uint64_t slots_of(std::uint64_t chunks) { return std::min(group, chunks) + ahead + 1; }
};

}  // namespace GLOBALQ_ABI::schedule
