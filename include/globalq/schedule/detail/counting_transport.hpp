// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: runs a schedule without sent() and hold() to count the bytes that it sends and holds.

#include "../../core/codec.hpp"
#include "piece_sizes.hpp"

#include <span>

namespace GLOBALQ_ABI::schedule::detail {

/// A transport that only counts sent bytes.
class counting_transport {
 public:
  struct request {};
  counting_transport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  request send_async(int, std::span<std::byte const> b) {
    bytes_ += b.size();
    return {};
  }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}
  template <class Value>
  void allreduce_sum(std::span<Value> values) {
    bytes_ +=
        values.size_bytes() * 2 * static_cast<std::uint64_t>(size_ - 1) / static_cast<std::uint64_t>(size_);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  int rank_, size_;
  std::uint64_t bytes_ = 0;
};

/// Bytes of the busiest workers. If a schedule does not report them, it runs for each worker over a counting transport.
/// @param c  a codec with the right frame sizes
template <class S>
busiest_worker busiest(S const& schedule, int workers, partition const& cut, codec& c,
                       piece_sizes const& sizes, bytes_before const& before) {
  if constexpr (SaysBytes<S> || SaysBusiest<S>) {
    return busiest(schedule, sizes, workers, before);
  } else {
    busiest_worker most;
    for (int rank = 0; rank < workers; ++rank) {
      counting_transport t(rank, workers);
      frame_pool frames = frame_pool::counting();
      schedule(t, c, cut, frames);
      most.sends(t.bytes() + before.sent(rank));
      slot_sizes slots = before.slots(rank);
      slots.hold(slot_sizes::shared, 1, frames.bytes());
      most.holds(slots);
    }
    return most;
  }
}

}  // namespace GLOBALQ_ABI::schedule::detail
