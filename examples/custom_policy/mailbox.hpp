// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A transport of one's own: threads of a process that leave messages for each other under numbers.

//! [mailbox]
#include <globalq/core/error.hpp>
#include <globalq/transport/concept.hpp>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

/// Where messages lie until they are taken: the k-th from one worker to another under (from, to, k).
struct letters {
  std::mutex guard;
  std::condition_variable arrived;
  std::map<std::tuple<int, int, int>, std::vector<std::byte>> box;
};

/// One worker's endpoint. A send is done when it returns; a receive when it was waited for.
class mailbox {
 public:
  struct request {
    int from = -1, number = 0;
    std::span<std::byte> room;
  };

  mailbox(letters& all, int rank, int size, std::chrono::nanoseconds deadline = std::chrono::minutes{1})
      : all_(all), rank_(rank), size_(size), deadline_(deadline), sent_(size, 0), awaited_(size, 0) {}
  int rank() const { return rank_; }
  int size() const { return size_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    std::scoped_lock const lock(all_.guard);
    all_.box[{rank_, peer, sent_[peer]++}].assign(bytes.begin(), bytes.end());
    all_.arrived.notify_all();
    return {};
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return {peer, awaited_[peer]++, bytes}; }

  void wait(request& posted) {
    if (posted.from < 0) return;  // a send, or done
    auto const [from, number, room] = std::exchange(posted, {});
    std::tuple const key{from, rank_, number};
    std::unique_lock lock(all_.guard);
    if (!all_.arrived.wait_for(lock, deadline_, [&] { return all_.box.contains(key); }))
      fail("nothing came from rank " + std::to_string(from), "see whether it still runs");
    auto const letter = all_.box.extract(key);
    if (letter.mapped().size() != room.size())
      fail("expected " + std::to_string(room.size()) + " bytes from rank " + std::to_string(from) + ", got " +
               std::to_string(letter.mapped().size()),
           "call with the same settings everywhere");
    std::copy(letter.mapped().begin(), letter.mapped().end(), room.begin());
  }

 private:
  [[noreturn]] void fail(std::string const& what, std::string const& remedy) const {
    throw globalq::transport_error(globalq::detail::worker_message("recv", rank_, size_, what, remedy));
  }

  letters& all_;
  int rank_, size_;
  std::chrono::nanoseconds deadline_;
  std::vector<int> sent_, awaited_;
};

static_assert(globalq::Transport<mailbox>);
//! [mailbox]
