// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: who sends which frame to whom; written once for every transport and every operator.
///
/// A schedule is a value with
/// - `static constexpr char const* name`, or `text()` where what it is called is known at run time only: all that tells it from
///   others, since workers compare it,
/// - `facts(workers)`: its height, and what it asks of an operator,
/// - `parts(workers)`: into how many segments a vector is cut,
/// - `additions(workers)`: the additions in order, (into, from); what variance bounds are computed from,
/// - `operator()(transport, codec, partition, frame_pool)`: the collective itself, for any Transport.
/// and, so that a plan need not run the collective for each worker (detail/piece_sizes.hpp),
/// - `sent(sizes, workers, rank)` and `hold(sizes, workers, rank, slots)`: bytes that a worker sends, and frames that it holds.
/// and, where its first round begins with frames of own values alone, which can so be made before anything travels,
/// - `leaves(partition, workers, rank, codec, frame_pool, list)`: adds these, where the collective will have them.
/// It sees bytes only, and cuts them into chunks so that encoding, transfer, adding and decoding overlap: while one chunk
/// is on its way, the next one is computed. Chunks change no bit. Every worker runs the same code with its own rank; a frame is finished by the worker that
/// combined it and by all others from the same bytes, so all results are bit-identical.

#include "../core/codec.hpp"
#include "../operator/detail/resolve.hpp"
#include "../transport/concept.hpp"

#include <array>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI {

template <class S>
concept Schedule = requires(S const& schedule, int workers) {
  { schedule.facts(workers) } -> std::same_as<detail::schedule_facts>;
  { schedule.parts(workers) } -> std::same_as<int>;
  { schedule.additions(workers) } -> std::same_as<std::vector<std::pair<int, int>>>;
};

namespace detail {

/// A schedule that adds the values of a node in float32; its leader encodes the sum.
template <class S>
concept SumsInNodes = requires {
  requires S::sums_in_nodes;
};

/// The part of its vector that a worker brings: all, unless the schedule says otherwise by `reads(partition, rank)`.
template <class S>
segment reads_of(S const& schedule, partition const& cut, int rank) {
  if constexpr (requires { schedule.reads(cut, rank); }) return schedule.reads(cut, rank);
  return {0, cut.length()};
}
/// The part that it gets: all, unless the schedule says otherwise by `writes(partition, rank)`.
template <class S>
segment writes_of(S const& schedule, partition const& cut, int rank) {
  if constexpr (requires { schedule.writes(cut, rank); }) return schedule.writes(cut, rank);
  return {0, cut.length()};
}
/// Adds the frames of own values alone that the first round begins with, if the schedule tells.
template <class S>
void add_leaves(S const& schedule, partition const& cut, int workers, int rank, codec const& c,
                frame_pool& frames, std::vector<unsent>& all) {
  if constexpr (requires { schedule.leaves(cut, workers, rank, c, frames, all); })
    schedule.leaves(cut, workers, rank, c, frames, all);
}
/// A hash of all that schedules say of themselves; of a user's too, whose name may not tell its parameters.
template <class S>
std::uint64_t schedule_fingerprint(S const& schedule, int workers) {
  std::uint64_t h = hash_fields(fingerprint(schedule.facts(workers)), schedule.parts(workers), workers);
  for (auto const& [into, from] : schedule.additions(workers)) h = hash_fields(h, into, from);
  return h;
}

/// Whether what workers bring lies side by side instead of being averaged.
template <class S>
inline constexpr bool gathers = requires {
  requires S::gathers;
};

}  // namespace detail

namespace schedule::detail {

/// What a schedule is called, whatever the number of workers; where its parameters are known at run time only, it says `text()`.
template <Schedule S>
std::string_view text_of(S const& schedule) {
  if constexpr (requires { schedule.text(); })
    return schedule.text();
  else
    return S::name;
}

/// Nothing is sent for an empty frame; both sides know.
template <Transport T>
typename T::request send(T& t, int to, std::span<std::byte const> frame) {
  return frame.empty() ? typename T::request{} : t.send_async(to, frame);
}
template <Transport T>
typename T::request recv(T& t, int from, std::span<std::byte> frame) {
  return frame.empty() ? typename T::request{} : t.recv_async(from, frame);
}

/// Sets of transfers that a call may have.
inline constexpr int most_sets = 16;

/// Transfers under way, in memory that the next call reuses. Leaving the scope by an exception gives them up.
///
/// They are kept in sets, each of which is waited for by itself: those of a chunk, say, while another is on its way. A thread that makes a
/// call within a call (from its transport, say) has sets for each.
template <Transport T>
class transfers {
 public:
  transfers() : lists_(room().lists()) {}
  ~transfers() {
    for (list& each : lists_) each.clear();
    --room().used;
  }
  transfers(transfers const&) = delete;
  transfers& operator=(transfers const&) = delete;

  GLOBALQ_CALLED void send(T& t, int to, std::span<std::byte const> frame, int set = 0) {
    of(set).push_back(detail::send(t, to, frame));
  }
  GLOBALQ_CALLED void recv(T& t, int from, std::span<std::byte> frame, int set = 0) {
    of(set).push_back(detail::recv(t, from, frame));
  }
  void wait(T& t, std::size_t i, int set = 0) { t.wait(of(set)[i]); }
  GLOBALQ_CALLED void wait_all(T& t, int set = 0) {
    for (auto& q : of(set)) t.wait(q);
    of(set).clear();
  }

 private:
  using list = std::vector<typename T::request>;
  using lists = std::array<list, most_sets>;
  struct thread_room {
    std::deque<typename transfers::lists> all;  // which stay where they are when there are more
    std::size_t used = 0;

    typename transfers::lists& lists() {
      if (used == all.size()) all.emplace_back();
      return all[used++];
    }
  };
  static thread_room& room() {
    thread_local thread_room of_thread;
    return of_thread;
  }
  list& of(int set) { return lists_[static_cast<std::size_t>(set)]; }

  lists& lists_;
};

/// One worker after the other joins the sum.
inline std::vector<std::pair<int, int>> chain(int workers) {
  std::vector<std::pair<int, int>> order;
  for (int r = 1; r < workers; ++r) order.emplace_back(0, r);
  return order;
}

}  // namespace schedule::detail
}  // namespace GLOBALQ_ABI
