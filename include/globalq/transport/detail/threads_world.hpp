// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: shared state of the workers of a threads cluster, and the sums of their values.

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../core/detail/abi.hpp"

namespace GLOBALQ_ABI::transport::detail {

/// State of a posted send or receive. Only `queued` ones are in a channel's queue.
enum class progress : int { queued, copying, done, mismatch, withdrawn };

struct channel;
struct worker;

/// One posted send or receive. Its owner takes it from its own pool and returns it; the other side accesses
/// it only between `queued` and the end of the copy.
struct operation {
  std::byte* data = nullptr;  // a sender's bytes are only read
  std::size_t bytes = 0;
  std::size_t peer_bytes = 0;  // set with `mismatch`
  std::atomic<progress> state{progress::done};
  operation* next = nullptr;  // in the channel's queue, or in the pool
  channel* on = nullptr;
  worker* owner = nullptr;
  int peer = 0;
  bool sends = false;
};

/// Messages from one worker to another. Since matches are made at once, the queue holds only sends or only
/// receives.
struct alignas(64) channel {
  std::mutex mutex;
  operation* first = nullptr;
  operation* last = nullptr;
  bool torn = false;  // an operation was withdrawn: later pairs could be wrong, so none are made

  void append(operation& op) {
    op.next = nullptr;
    (first == nullptr ? first : last->next) = &op;
    last = &op;
  }

  void remove(operation& op) {
    operation* before = nullptr;
    for (operation* at = first; at != &op; at = at->next) before = at;
    (before == nullptr ? first : before->next) = op.next;
    if (last == &op) last = before;
  }
};

/// A worker's input to a collective.
struct offer {
  static constexpr std::size_t small_bytes = 256;  // up to this size a collective uses `copy`

  char const* call = "";
  std::size_t bytes = 0;
  std::byte* data = nullptr;
  alignas(64) std::array<std::byte, small_bytes> copy;
};

/// State of a worker that the others access. It outlives the worker's endpoint.
struct alignas(64) worker {
  int rank = 0;

  std::mutex mutex;  // only for sleeping
  std::condition_variable awake;
  std::atomic<bool> asleep{false};

  std::atomic<std::uint64_t> arrived{0};  // number of barriers it has reached
  std::atomic<bool> touching{false};      // reads or writes the other workers' offers
  std::atomic<bool> gone{false};          // has left the run
  std::array<offer, 2> offers;            // used alternately: one is read while the next is written

  // Only the worker itself uses the following members.
  std::deque<operation> operations;
  operation* spare = nullptr;
  std::atomic<bool> blames_another{
      false};  // it threw because of another worker's failure, perhaps over a duplicate

  operation& take() {
    if (spare == nullptr) {
      spare = &operations.emplace_back();
      spare->owner = this;
    }
    return *std::exchange(spare, spare->next);
  }

  void give_back(operation& op) { op.next = std::exchange(spare, &op); }

  void wake() {
    if (!asleep.load()) return;
    {
      std::lock_guard const lock{mutex};
    }  // a worker that announced its sleep now sleeps, or has checked again
    awake.notify_all();
  }
};

/// Withdraws an operation; afterwards no other worker accesses its bytes.
inline void withdraw(operation& op) {
  if (op.state.load() == progress::queued) {
    std::lock_guard const lock{op.on->mutex};
    if (op.state.load() == progress::queued) {
      op.on->remove(op);
      op.on->torn = true;
      op.state.store(progress::withdrawn);
    }
  }
  while (op.state.load() == progress::copying) std::this_thread::yield();
}

/// Shared state of the workers of a cluster.
struct world {
  /// @param of  the world that this one duplicates; null: none
  world(int workers, std::chrono::nanoseconds longest_wait, world* of = nullptr)
      : size{workers},
        origin{of == nullptr ? *this : of->origin},
        deadline{longest_wait},
        crew(static_cast<std::size_t>(workers)),
        channels(crew.size() * crew.size()) {
    for (int rank = 0; rank < workers; ++rank) at(rank).rank = rank;
  }

  worker& at(int rank) { return crew[static_cast<std::size_t>(rank)]; }

  channel& between(int from, int to) {
    return channels[static_cast<std::size_t>(from) * crew.size() + static_cast<std::size_t>(to)];
  }

  void wake_all() {
    for (auto& each : crew) each.wake();
  }

  /// Records the first failure of a run, which the other workers report; without its message if memory is exhausted.
  void fail(int rank, std::string_view message) noexcept {
    {
      std::lock_guard const lock{failure};
      if (failed.load()) return;
      failed_rank = rank;
      try {
        failed_message = message;
      } catch (std::bad_alloc const&) {
        failed_message = "out of memory";  // short enough to need no allocation
      }
      failed.store(true);
    }
    wake_all();
    each_duplicate([&](world& other) { other.fail(rank, message); });
  }

  /// Marks a worker as gone.
  void leave(int rank) {
    at(rank).gone.store(true);
    wake_all();
    each_duplicate([&](world& other) { other.leave(rank); });
  }

  /// Calls f for the worlds of endpoints that were duplicated from this one's.
  template <class F>
  void each_duplicate(F const& f) {
    std::lock_guard const lock{family};
    for (auto const& other : duplicates)
      if (auto const alive = other.lock()) f(*alive);
  }

  void reset() {
    for (auto& line : channels) {
      for (operation* op = line.first; op != nullptr; op = op->next) op->state.store(progress::withdrawn);
      line.first = line.last = nullptr;
      line.torn = false;
    }
    for (auto& each : crew) {
      each.arrived.store(0);
      each.gone.store(false);
      each.blames_another = false;
    }
    duplicates.clear();
    arrivals.store(0);
    failed.store(false);
  }

  int const size;
  world& origin;  // of the run
  std::chrono::nanoseconds const deadline;
  std::vector<worker> crew;
  std::vector<channel> channels;
  alignas(64) std::atomic<std::uint64_t> arrivals{0};  // total over all barriers of the run
  alignas(64) std::atomic<bool> failed{false};
  std::mutex failure;  // guards the next two until `failed` is set; they are constant afterwards
  int failed_rank = 0;
  std::string failed_message;
  std::atomic<bool> running{false};
  std::mutex family;  // guards the next
  std::vector<std::weak_ptr<world>> duplicates;
};

template <class Value>
constexpr char const* sum_call() {
  if constexpr (std::same_as<Value, std::int8_t>) return "allreduce_sum of int8";
  if constexpr (std::same_as<Value, std::int16_t>) return "allreduce_sum of int16";
  if constexpr (std::same_as<Value, std::int32_t>) return "allreduce_sum of int32";
  return "allreduce_sum of float";
}

/// sum[i] += values[i]; integers wrap.
template <class Value>
void add_values(Value* sum, Value const* values, std::size_t count) {
  if constexpr (std::integral<Value>) {
    using bits = std::make_unsigned_t<Value>;
    for (std::size_t i = 0; i < count; ++i)
      sum[i] =
          static_cast<Value>(static_cast<bits>(static_cast<bits>(sum[i]) + static_cast<bits>(values[i])));
  } else {
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
}

}  // namespace GLOBALQ_ABI::transport::detail
