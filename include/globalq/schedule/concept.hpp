// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: which worker sends which frame to which worker; independent of transport and operator.
///
/// A schedule is a value with
/// - `static constexpr char const* name`, or `text()` for a name that is known only at run time. The name must identify
///   the schedule and its parameters, since workers compare it.
/// - `facts(workers)`: its height, and its requirements on an operator.
/// - `parts(workers)`: the number of segments of a vector.
/// - `additions(workers)`: the additions in order, as pairs (into, from), for variance bounds.
/// - `operator()(transport, codec, partition, frame_pool)`: the collective, for any Transport.
/// - Optional, so that a plan need not run the collective for each worker (detail/piece_sizes.hpp): `sent(sizes,
///   workers, rank)` and `hold(sizes, workers, rank, slots)`, the bytes that a worker sends, and the frames that it
///   holds.
/// - Optional, if the first step sends frames that contain only the worker's own values and can be encoded before any
///   communication: `leaves(partition, workers, rank, codec, frame_pool, list)` adds these frames to the list, in the
///   buffers of the collective.
///
/// A schedule handles bytes only. It splits them into chunks, so that encoding, transfer, addition and decoding
/// overlap. Chunks do not change results. Every worker runs the same code with its own rank. The worker that combined a
/// frame and all others decode the same bytes, so all results are bit-identical.

#include "../core/codec.hpp"
#include "../core/detail/expect_member.hpp"
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

/// The part of its vector that a worker contributes: all, unless the schedule has `reads(partition, rank)`.
template <class S>
segment reads_of(S const& schedule, partition const& cut, int rank) {
  if constexpr (requires { schedule.reads(cut, rank); }) return schedule.reads(cut, rank);
  return {0, cut.length()};
}
/// The part that a worker receives: all, unless the schedule has `writes(partition, rank)`.
template <class S>
segment writes_of(S const& schedule, partition const& cut, int rank) {
  if constexpr (requires { schedule.writes(cut, rank); }) return schedule.writes(cut, rank);
  return {0, cut.length()};
}
/// Adds the frames that the first step sends and that contain only own values, if the schedule has leaves().
template <class S>
void add_leaves(S const& schedule, partition const& cut, int workers, int rank, codec const& c,
                frame_pool& frames, std::vector<unsent>& all) {
  if constexpr (requires { schedule.leaves(cut, workers, rank, c, frames, all); })
    schedule.leaves(cut, workers, rank, c, frames, all);
}
/// A hash of all facts of a schedule. It also distinguishes a user's schedules whose name omits a parameter.
template <class S>
std::uint64_t schedule_fingerprint(S const& schedule, int workers) {
  std::uint64_t h = hash_fields(fingerprint(schedule.facts(workers)), schedule.parts(workers), workers);
  for (auto const& [into, from] : schedule.additions(workers)) h = hash_fields(h, into, from);
  return h;
}

/// Whether the schedule concatenates the workers' parts.
template <class S>
inline constexpr bool gathers = requires {
  requires S::gathers;
};
/// Whether it averages; if not, each value of a result is that of one worker.
template <class S>
inline constexpr bool averages = !requires {
  requires !S::averages;
};

}  // namespace detail

namespace schedule::detail {

/// Name of a schedule, independent of the number of workers: `text()` if its parameters are known only at run time.
template <Schedule S>
std::string_view text_of(S const& schedule) {
  GLOBALQ_EXPECT_MEMBER(
      "schedule", "static constexpr char const* name",
      requires { S::name; } || requires { schedule.text(); });
  if constexpr (requires { schedule.text(); })
    return schedule.text();
  else
    return S::name;
}

/// Both sides skip the message of an empty frame.
template <Transport T>
typename T::request send(T& t, int to, std::span<std::byte const> frame) {
  return frame.empty() ? typename T::request{} : t.send_async(to, frame);
}
template <Transport T>
typename T::request recv(T& t, int from, std::span<std::byte> frame) {
  return frame.empty() ? typename T::request{} : t.recv_async(from, frame);
}

/// Maximum number of sets of transfers of a call.
inline constexpr int most_sets = 16;

/// Pending transfers, in memory that the next call reuses. An exception that leaves the scope gives them up.
///
/// Each set is waited for separately, for example the transfers of one chunk while those of another are pending. A call
/// within a call on the same thread (for example by its transport) has its own sets.
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
    std::deque<typename transfers::lists> all;  // a deque: elements do not move when it grows
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

/// Additions of a chain: one worker after the other joins the sum.
inline std::vector<std::pair<int, int>> chain(int workers) {
  std::vector<std::pair<int, int>> order;
  for (int r = 1; r < workers; ++r) order.emplace_back(0, r);
  return order;
}

}  // namespace schedule::detail
}  // namespace GLOBALQ_ABI
