// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: every worker adds one segment of all workers and sends the sum to all.

#include "detail/frames.hpp"
#include "detail/piece_sizes.hpp"

namespace GLOBALQ_ABI::schedule {

/// @brief Two steps of n-1 messages. One worker receives all frames of a segment, so their sum is encoded only once.
/// @complexity bytes sent: 2 S (n-1)/n; height n-1 for the exponential reduce (rank order), one encoding when
/// requantizing
/// @source Markov 2024 (thesis), chapter 3 (CGX); Thakur et al. 2005
struct scatter_reduce_allgather {
  static constexpr char const* name = "sra";
  static constexpr char const* long_name = "scatter_reduce_allgather";  ///< schedule::any accepts it too
  static globalq::detail::schedule_facts facts(int workers) {
    globalq::detail::schedule_facts f{name, workers - 1, true, false, true, 0, true};
    f.chunks_overlap = true;
    return f;
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int workers) { return detail::chain(workers); }

  /// Bytes that a worker sends: each other segment to its owner, and the sum of its own to all others.
  static std::uint64_t sent(detail::piece_sizes const& all, int workers, int rank) {
    return detail::capped_sum(
        all.all() - all.of(rank),
        detail::capped_product(all.sums().of(rank), static_cast<std::uint64_t>(workers - 1)));
  }
  /// Sizes of a worker's frames, slot by slot.
  static void hold(detail::piece_sizes const& all, int workers, int rank, detail::slot_sizes& frames) {
    std::uint64_t const n = static_cast<std::uint64_t>(workers), r = static_cast<std::uint64_t>(rank);
    for (std::uint64_t k = 0; k < std::min<std::uint64_t>(2, all.rounds()); ++k) {
      std::uint64_t const in = k * (2 * n + 1), out = in + n, own = all.run_of(rank).largest(2, k);
      for (auto const& run : all.runs()) {
        std::uint64_t const first = static_cast<std::uint64_t>(run.first),
                            end = first + static_cast<std::uint64_t>(run.count), leaf = run.largest(2, k),
                            sum = all.sums().run_of(run.first).largest(2, k);
        auto const others = [&](std::uint64_t from, std::uint64_t to) {
          if (from >= to) return;
          frames.hold(in + from, to - from, std::max(own, sum));
          frames.hold(out + from, to - from, leaf);
        };
        others(first, std::min(r, end));
        others(std::max(first, r + 1), end);
      }
      frames.hold(out + n, 1, all.sums().run_of(rank).largest(2, k));
    }
  }

  static void leaves(partition const& cut, int workers, int rank, codec const& c, frame_pool& frames,
                     std::vector<unsent>& all) {
    for (int p = 0; p < workers; ++p)
      if (p != rank && cut.rounds() != 0) all.push_back(leaf_for(p, 0, cut, workers, c, frames));
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    std::uint64_t const rounds = cut.rounds();
    detail::transfers<T> under_way;
    auto const slot = [&](std::uint64_t round, int i) { return slot_of(n, round, i); };
    auto const leaf_set = [](std::uint64_t round) { return static_cast<int>(round % 2); };
    auto const sum_set = [](std::uint64_t round) { return 2 + static_cast<int>(round % 2); };
    auto const theirs = [&](std::uint64_t round, int p) {
      return frames.get(slot(round, p), c.frame_bytes(cut.piece(p, round), n));
    };

    // Frames of variable length arrive as head and remainder. Receives are posted in the order of the sends:
    // leaves, sums, leaves of the next chunk. A head is therefore received only after the preceding remainders.
    std::size_t const head = c.head_bytes();
    bool const varying = head != 0, batches = c.batches() && !varying;
    int const leaf_heads = 4, sum_heads = 5, rests = 6;
    auto const leaf = [&](std::uint64_t round, int p) {
      return frames.get(slot(round, p), c.frame_bytes(cut.piece(r, round), 1));
    };
    auto const expect_leaves = [&](std::uint64_t round) {
      if (round >= rounds) return;
      for (int p = 0; p < n; ++p)
        if (p != r)
          varying ? under_way.recv(t, p, detail::head_of(leaf(round, p), head), leaf_heads)
                  : under_way.recv(t, p, leaf(round, p), leaf_set(round));
    };

    auto const encode = [&](std::uint64_t round) {
      if (!varying) expect_leaves(round);
      auto const unsent_to = [&](int p) { return leaf_for(p, round, cut, n, c, frames); };
      if (batches) {
        std::vector<unsent>& all = frames.unsent_frames(static_cast<std::size_t>(n));
        for (int p = 0; p < n; ++p)
          if (p != r) all.push_back(unsent_to(p));
        c.encode_all(all);
      }
      for (int k = 1; k < n;
           ++k) {  // each worker starts with its right neighbor, so that no worker is flooded
        int const p = (r + k) % n;
        unsent const each = unsent_to(p);
        if (!batches) c.combine(each.part, true, {}, each.frame);
        detail::send_frame(under_way, t, c, p, each.frame, leaf_set(round));
      }
    };
    auto const add = [&](std::uint64_t round) {
      segment const mine = cut.piece(r, round);
      if (varying) {
        under_way.wait_all(t, leaf_heads);
        for (int p = 0; p < n; ++p)
          if (p != r) detail::recv_rest(under_way, t, c, p, leaf(round, p), rests);
        under_way.wait_all(t, rests);
      }
      under_way.wait_all(t, leaf_set(round));
      std::vector<source>& arrived = frames.sources(static_cast<std::size_t>(n));
      for (int p = 0; p < n; ++p)
        if (p != r) arrived.push_back({detail::used(c, leaf(round, p), p), 1, p});
      auto const sum = frames.get(slot(round, 2 * n), c.frame_bytes(mine, n));
      c.combine(mine, true, arrived, sum);
      for (int p = 0; p < n; ++p)
        if (p != r)
          varying ? under_way.recv(t, p, detail::head_of(theirs(round, p), head), sum_heads)
                  : under_way.recv(t, p, theirs(round, p), sum_set(round));
      for (int k = 1; k < n; ++k) detail::send_frame(under_way, t, c, (r + k) % n, sum, sum_set(round));
      if (batches) return;
      source const done{detail::used(c, sum, r), n, r};
      c.finish(mine, {&done, 1});
    };
    auto const finish = [&](std::uint64_t round) {
      if (varying) {
        under_way.wait_all(t, sum_heads);
        for (int p = 0; p < n; ++p)
          if (p != r) detail::recv_rest(under_way, t, c, p, theirs(round, p), rests);
        expect_leaves(round + 1);
      }
      if (batches) {
        under_way.wait_all(t, sum_set(round));
        std::vector<arrived>& all = frames.arrived_frames(static_cast<std::size_t>(n));
        for (int p = 0; p < n; ++p) {
          segment const part = cut.piece(p, round);
          all.push_back(
              {part,
               {p == r ? frames.get(slot(round, 2 * n), c.frame_bytes(part, n)) : theirs(round, p), n, p}});
        }
        return c.finish_all(all);
      }
      int const arrivals = varying ? rests : sum_set(round);
      std::size_t arrival = 0;
      for (int p = 0; p < n; ++p) {
        if (p == r) continue;
        under_way.wait(t, arrival++, arrivals);
        source const done{detail::used(c, theirs(round, p), p), n, p};
        c.finish(cut.piece(p, round), {&done, 1});
      }
      under_way.wait_all(t, sum_set(round));
      if (varying) under_way.wait_all(t, rests);
    };

    if (varying) expect_leaves(0);
    if (rounds != 0) encode(0);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      add(round);
      if (round + 1 < rounds) encode(round + 1);
      finish(round);
    }
  }

 private:
  /// Slots of a chunk: n frames in, n frames out, the sum; while the sums of one chunk travel, the next chunk is
  /// encoded.
  static std::size_t slot_of(int workers, std::uint64_t round, int i) {
    return static_cast<std::size_t>(i + (2 * workers + 1) * static_cast<int>(round % 2));
  }
  static unsent leaf_for(int p, std::uint64_t round, partition const& cut, int workers, codec const& c,
                         frame_pool& frames) {
    segment const part = cut.piece(p, round);
    return {part, frames.get(slot_of(workers, round, workers + p), c.frame_bytes(part, 1))};
  }
};

/// Short name, used in messages.
using sra = scatter_reduce_allgather;

}  // namespace GLOBALQ_ABI::schedule
