// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule of all_to_all: every worker sends another vector to each worker.

#include "frames.hpp"

namespace GLOBALQ_ABI::schedule::detail {

/// @brief Part p of a worker's values is for worker p, and is written where the sender's rank is. The codec is that of a group of
/// as many equal vectors as there are workers.
/// @complexity bytes sent: S (n-1)/n; one message to each worker; height 0
struct cross {
  static constexpr char const* name = "all-to-all";
  static constexpr bool averages = false;

  static globalq::detail::schedule_facts facts(int /*workers*/) {
    return {name, 0, false, false, false, 0, true, "all_to_all"};
  }
  static int parts(int workers) { return workers; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank();
    auto const slot = [&](std::uint64_t round, int i) {
      return static_cast<std::size_t>(i + 2 * n * static_cast<int>(round % 2));
    };
    auto const in = [&](std::uint64_t round, int p) {
      return frames.get(slot(round, p), c.frame_bytes(cut.piece(r, round), 1));
    };
    transfers<T> under_way;
    exchange_rounds(
        under_way, t, neighborhood{0, n}, c, cut.rounds(), in,
        [&](std::uint64_t round, auto const& send) {
          c.combine(cut.piece(r, round), true, {}, in(round, r));
          neighborhood{0, n}.after(r, [&](int p) {
            auto const out = frames.get(slot(round, n + p), c.frame_bytes(cut.piece(p, round), 1));
            c.combine(cut.piece(p, round), true, {}, out);
            send(p, out);
          });
        },
        [&](std::uint64_t round) {
          for (int p = 0; p < n; ++p) {
            source const one{used(c, in(round, p), p), 1, p, p};
            c.finish_at(cut.piece(r, round), {&one, 1}, cut.piece(p, round).first);
          }
        });
  }
};

}  // namespace GLOBALQ_ABI::schedule::detail
