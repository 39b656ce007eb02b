// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: every worker receives every frame, decodes all and adds them in rank order.

#include "detail/frames.hpp"
#include "detail/piece_sizes.hpp"

namespace GLOBALQ_ABI::schedule {

/// @brief One step, and one rounding per worker, so the least variance; bytes grow with the number of workers.
/// @complexity bytes sent: S (n-1); height 0
struct allgather {
  static constexpr char const* name = "allgather";
  static globalq::detail::schedule_facts facts(int) {
    globalq::detail::schedule_facts f{name, 0, false, false, false, 0, true};
    f.chunks_overlap = true;
    return f;
  }
  static int parts(int) { return 1; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }

  /// Bytes that a worker sends.
  static std::uint64_t sent(detail::piece_sizes const& all, int workers, int) {
    return detail::capped_product(all.all(), static_cast<std::uint64_t>(workers - 1));
  }
  /// Sizes of a worker's frames, slot by slot.
  static void hold(detail::piece_sizes const& all, int workers, int, detail::slot_sizes& frames) {
    std::uint64_t const n = static_cast<std::uint64_t>(workers);
    for (std::uint64_t k = 0; k < std::min<std::uint64_t>(2, all.rounds()); ++k)
      frames.hold(n * k, n, all.run_of(0).largest(2, k));
  }

  static void leaves(partition const& cut, int workers, int rank, codec const& c, frame_pool& frames,
                     std::vector<unsent>& all) {
    if (cut.rounds() != 0) all.push_back({cut.piece(0, 0), frame_in(cut, workers, 0, rank, c, frames)});
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    auto const frame_of = [&](std::uint64_t round, int p) { return frame_in(cut, n, round, p, c, frames); };
    detail::transfers<T> under_way;
    detail::neighborhood const all{0, n};
    detail::exchange_rounds(
        under_way, t, all, c, cut.rounds(), frame_of,
        [&](std::uint64_t round, auto const& send) {
          auto const mine = frame_of(round, r);
          c.combine(cut.piece(0, round), true, {}, mine);
          all.after(r, [&](int p) { send(p, mine); });
        },
        [&](std::uint64_t round) {
          std::vector<source>& arrived = frames.sources(static_cast<std::size_t>(n));
          for (int p = 0; p < n; ++p) arrived.push_back({detail::used(c, frame_of(round, p), p), 1, p});
          c.finish(cut.piece(0, round), arrived);
        });
  }

 private:
  static std::span<std::byte> frame_in(partition const& cut, int workers, std::uint64_t round, int p,
                                       codec const& c, frame_pool& frames) {
    return frames.get(static_cast<std::size_t>(p + workers * static_cast<int>(round % 2)),
                      c.frame_bytes(cut.piece(0, round), 1));
  }
};

}  // namespace GLOBALQ_ABI::schedule
