// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom transport: threads of a process that leave numbered messages for each other.

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

//! [mailbox]
#include <globalq/transport/concept.hpp>

/// Holds messages until they are received: the k-th from one worker to another has the key (from, to, k).
struct letters {
  std::mutex guard;
  std::condition_variable arrived;
  std::map<std::tuple<int, int, int>, std::vector<std::byte>> box;
};

/// One worker's endpoint. A send is complete when it returns, a receive after its wait.
class mailbox {
 public:
  struct request {
    std::tuple<int, int, int> key{-1, 0, 0};  // of a receive that is still pending
    std::span<std::byte> room;
  };

  mailbox(letters& all, int rank, int size, std::chrono::nanoseconds deadline = std::chrono::minutes{1})
      : all_(all), rank_(rank), size_(size), deadline_(deadline), sent_(size, 0), got_(size, 0) {}
  int rank() const { return rank_; }
  int size() const { return size_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    std::scoped_lock const lock(all_.guard);
    all_.box[{rank_, peer, sent_[peer]++}].assign(bytes.begin(), bytes.end());
    all_.arrived.notify_all();
    return {};
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return {{peer, rank_, got_[peer]++}, bytes}; }

  void wait(request& posted) {
    if (std::get<0>(posted.key) < 0) return;  // a send, or a completed receive
    auto const [key, room] = std::exchange(posted, {});
    std::unique_lock lock(all_.guard);
    std::vector<std::byte> letter;
    if (all_.arrived.wait_for(lock, deadline_, [&, k = key] { return all_.box.contains(k); }))
      letter = std::move(all_.box.extract(key).mapped());
    if (letter.size() != room.size())
      throw globalq::transport_error(globalq::detail::worker_message(
          "recv", rank_, size_,
          "expected " + std::to_string(room.size()) + " bytes from rank " + std::to_string(std::get<0>(key)) +
              ", got " + std::to_string(letter.size()),
          "see whether it still runs, and makes the same calls"));
    std::copy(letter.begin(), letter.end(), room.begin());
  }

 private:
  letters& all_;
  int rank_, size_;
  std::chrono::nanoseconds deadline_;
  std::vector<int> sent_, got_;
};
//! [mailbox]

static_assert(globalq::Transport<mailbox>);
