// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: a transport that moves no bytes and records a worker's actions: one worker's part of a simulation.

#include "../core/error.hpp"
#include "../transport/concept.hpp"
#include "costs.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

struct timing;

/// @brief The largest number of messages of a simulation, which takes about a minute.
inline constexpr std::uint64_t most_simulated_messages = std::uint64_t{1} << 28;
/// @brief The largest number of a worker's events in a simulation: messages, waits and pieces of work. They take half a
///        gigabyte.
inline constexpr std::size_t most_simulated_events = std::size_t{1} << 25;

/// @brief The kinds of a worker's own work.
enum class part : std::uint8_t { norm, encode, reduce, decode };

namespace detail {

/// One action of a worker. Peers are stored as distances from the peer of the last message in the same direction, and
/// requests as distances from the last one that was waited for, so that repetitions are equal.
struct event {
  enum class kind : std::uint32_t { send, recv, wait_sent, wait_received, work };
  kind what = kind::work;
  std::uint32_t who = 0;    ///< distance of peers; the part of work
  std::uint64_t value = 0;  ///< bytes; distance of requests, modulo 2^64; bits of seconds
  bool operator==(event const&) const = default;
};

/// All actions of a worker, with repetitions stored once.
struct script {
  struct run {
    std::uint32_t first, length, times;
  };
  std::vector<event> events;
  std::vector<run> runs;
  std::uint64_t send_reach = 0, recv_reach = 0;  ///< the largest distance back to a request

  /// @complexity linear for repetitions, else times longest_run
  void append(std::vector<event> const& all) {
    constexpr std::size_t longest_run = 32;
    std::size_t plain = 0;  // start of the events before i that repeat nothing
    auto const add = [&](std::size_t first, std::size_t length, std::size_t times) {
      if (length == 0) return;
      runs.push_back({static_cast<std::uint32_t>(events.size()), static_cast<std::uint32_t>(length),
                      static_cast<std::uint32_t>(times)});
      events.insert(events.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                    all.begin() + static_cast<std::ptrdiff_t>(first + length));
    };
    std::size_t i = 0;
    while (i < all.size()) {
      std::size_t best = 0, best_end = i;
      for (std::size_t length = 1; length <= longest_run && i + length < all.size(); ++length) {
        if (!(all[i] == all[i + length])) continue;
        std::size_t end = i + length;
        while (end < all.size() && all[end] == all[end - length]) ++end;
        end -= (end - i) % length;
        if (end - i >= 2 * length && end > best_end) {
          best = length;
          best_end = end;
        }
        if (end - i >= 4 * longest_run) break;  // long enough: do not search for a longer one
      }
      if (best == 0) {
        ++i;
        continue;
      }
      add(plain, i - plain, 1);
      add(i, best, (best_end - i) / best);
      i = plain = best_end;
    }
    add(plain, all.size() - plain, 1);
  }
};

}  // namespace detail

/// @brief A Transport that moves no bytes and records actions: one worker's part of a simulation.
class recorder {
 public:
  /// A send or a receive.
  struct request {
    std::int64_t number = -1;  ///< among the sends, or the receives, of this worker
    bool sends = false;
    int peer = 0;
    std::uint32_t place = 0;  ///< position among the receives from that peer
  };

  int rank() const { return rank_; }
  int size() const { return size_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    note(detail::event::kind::send, distance(peer, last_to_), bytes.size());
    if (++all_sends_ > most_simulated_messages)
      throw configuration_error("globalq: model::simulate: the first " + std::to_string(rank_ + 1) + " of " +
                                std::to_string(size_) + " workers send more than " +
                                std::to_string(most_simulated_messages) +
                                " messages; simulate longer chunks, or fewer workers");
    return {sends_++, true, peer, 0};
  }
  request recv_async(int peer, std::span<std::byte>) {
    note(detail::event::kind::recv, distance(peer, last_from_), 0);
    return {recvs_++, false, peer, posted_[static_cast<std::size_t>(peer)]++};
  }
  void wait(request& r) {
    if (r.number < 0) return;
    std::uint64_t& reach = r.sends ? notes_.send_reach : notes_.recv_reach;
    reach = std::max(reach, static_cast<std::uint64_t>((r.sends ? sends_ : recvs_) - r.number));
    std::int64_t& last = r.sends ? last_sent_ : last_received_;
    std::uint64_t const distance = static_cast<std::uint64_t>(r.number - last);
    last = r.number;
    if (!r.sends && r.place != waited_[static_cast<std::size_t>(r.peer)]++)
      throw configuration_error(
          "globalq: model: rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
          ": receives from one sender were not awaited in posting order; wait for all of them in order");
    note(r.sends ? detail::event::kind::wait_sent : detail::event::kind::wait_received, 0, distance);
    r.number = -1;
  }

  /// Records own work of this worker.
  void work(part what, double seconds) {
    if (seconds != 0)
      note(detail::event::kind::work, static_cast<std::uint32_t>(what),
           std::bit_cast<std::uint64_t>(seconds));
  }

 private:
  template <class F>
  friend timing simulate(network const& net, F const& each);

  explicit recorder(int size)
      : size_(size), posted_(static_cast<std::size_t>(size)), waited_(static_cast<std::size_t>(size)) {}

  void begin(int rank) {
    rank_ = last_to_ = last_from_ = rank;
    sends_ = recvs_ = last_sent_ = last_received_ = 0;
    std::fill(posted_.begin(), posted_.end(), 0U);
    std::fill(waited_.begin(), waited_.end(), 0U);
    events_.clear();
    notes_ = {};
  }
  detail::script end() {
    notes_.append(events_);
    return std::move(notes_);
  }

  std::uint32_t distance(int peer, int& last) const {
    if (peer < 0 || peer >= size_)
      throw configuration_error("globalq: model: worker " + std::to_string(rank_) + " of " +
                                std::to_string(size_) + " names worker " + std::to_string(peer) +
                                "; ranks are 0 to n - 1");
    int const d = peer - last;
    last = peer;
    return static_cast<std::uint32_t>(d < 0 ? d + size_ : d);
  }
  void note(detail::event::kind what, std::uint32_t who, std::uint64_t value) {
    if (events_.size() == most_simulated_events)  // repetitions are removed only at the end
      throw configuration_error("globalq: model::simulate: worker " + std::to_string(rank_) + " of " +
                                std::to_string(size_) + " has more than " +
                                std::to_string(most_simulated_events) +
                                " events, messages and work; simulate longer chunks");
    events_.push_back({what, who, value});
  }

  int rank_ = 0, size_ = 1, last_to_ = 0, last_from_ = 0;
  std::int64_t sends_ = 0, recvs_ = 0, last_sent_ = 0, last_received_ = 0;
  std::uint64_t all_sends_ = 0;  ///< of all workers so far
  std::vector<std::uint32_t> posted_, waited_;
  std::vector<detail::event> events_;
  detail::script notes_;
};
static_assert(Transport<recorder>);

}  // namespace GLOBALQ_ABI::model
