// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: all-to-all exchange of frames, round by round; also of frames of variable length.
///
/// A frame of variable length travels as its head, which contains the length, and the remainder. Receives are posted in
/// the order of the sends, so the head of a frame is received after the remainder of the previous one.

#include "../concept.hpp"

#include <algorithm>

namespace GLOBALQ_ABI::schedule::detail {

/// The first bytes of a frame; empty for an empty frame.
inline std::span<std::byte> head_of(std::span<std::byte> frame, std::size_t bytes) {
  return frame.first(std::min(bytes, frame.size()));
}

/// The used bytes of a frame that was made or has arrived; all of it if lengths are fixed.
/// @throws frame_error if its head states a length above its room
inline std::span<std::byte> used(codec const& c, std::span<std::byte> frame, int worker) {
  return c.head_bytes() == 0 || frame.empty() ? frame : frame.first(c.length_of(frame, worker));
}

/// Sends a frame: at once, or, if its length varies, the head and then the remainder.
template <Transport T>
void send_frame(transfers<T>& under_way, T& t, codec const& c, int to, std::span<std::byte> frame, int set) {
  std::size_t const head = c.head_bytes();
  if (head == 0 || frame.empty()) return under_way.send(t, to, frame, set);
  under_way.send(t, to, frame.first(head), set);
  under_way.send(t, to, used(c, frame, t.rank()).subspan(head), set);
}

/// Receives the remainder of a frame whose head has arrived.
template <Transport T>
void recv_rest(transfers<T>& under_way, T& t, codec const& c, int from, std::span<std::byte> frame, int set) {
  under_way.recv(t, from, frame.empty() ? frame : used(c, frame, from).subspan(c.head_bytes()), set);
}

/// Number of sets of transfers that exchange_rounds() uses.
inline constexpr int exchange_sets = 4;

/// Workers with consecutive ranks.
struct neighborhood {
  int first = 0;
  int count = 0;

  /// f(p) for each of them except @p rank, its right neighbor first, so that no worker is flooded.
  template <class F>
  void after(int rank, F const& f) const {
    for (int k = 1; k < count; ++k) f(first + (rank - first + k) % count);
  }
};

/// Exchanges frames round by round: every worker makes its frames, sends them to the others, and uses those of all. It
/// makes the frames of the next round while those of one are in transfer.
/// @param under_way  transfers, of which the sets below exchange_sets are used
/// @param among      the workers that exchange frames, this one included
/// @param in         in(round, p): room for the frame of worker p
/// @param make       make(round, send): makes the frames of a round and passes each to send(p, frame) for worker p
/// @param use        use(round): called when all frames of the round have arrived
template <Transport T, class In, class Make, class Use>
void exchange_rounds(transfers<T>& under_way, T& t, neighborhood among, codec const& c, std::uint64_t rounds,
                     In const& in, Make const& make, Use const& use) {
  constexpr int heads = 2, rests = 3;
  int const r = t.rank();
  std::size_t const head = c.head_bytes();
  auto const from_others = [&](auto const& f) {
    for (int p = among.first; p < among.first + among.count; ++p)
      if (p != r) f(p);
  };
  auto const expect = [&](std::uint64_t round) {
    if (round >= rounds) return;
    from_others([&](int p) {
      if (head == 0)
        under_way.recv(t, p, in(round, p), static_cast<int>(round % 2));
      else
        under_way.recv(t, p, head_of(in(round, p), head), heads);
    });
  };
  auto const start = [&](std::uint64_t round) {
    if (round >= rounds) return;
    if (head == 0) expect(round);
    make(round, [&](int to, std::span<std::byte> frame) {
      send_frame(under_way, t, c, to, frame, static_cast<int>(round % 2));
    });
  };
  if (head != 0) expect(0);
  start(0);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    start(round + 1);
    if (head != 0) {
      under_way.wait_all(t, heads);
      from_others([&](int p) { recv_rest(under_way, t, c, p, in(round, p), rests); });
      expect(round + 1);
      under_way.wait_all(t, rests);
    }
    under_way.wait_all(t, static_cast<int>(round % 2));
    use(round);
  }
}

}  // namespace GLOBALQ_ABI::schedule::detail
