// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: the messages that a calibration sends: alone, many at once, in a stream.

#include "../../transport/collectives.hpp"
#include "../measured.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::model::detail {

/// Sends messages from all workers at the same time.
template <Transport T>
class prober {
 public:
  prober(T& t, std::size_t bytes) : t_(t) { out_.resize(std::max<std::size_t>(bytes, short_bytes)); }

  /// The memory of all messages.
  std::shared_ptr<void> memory() const { return memory_; }

  static constexpr std::size_t short_bytes = 64;
  static constexpr int flood = 32, turns = 16;

  /// Seconds of one exchange with the neighbors, in sequence: one message to the right, one from the left.
  double exchange(std::size_t bytes, int times) {
    std::span<std::byte> const in = room(1, bytes);
    transport::barrier(t_);
    auto const start = std::chrono::steady_clock::now();
    for (int k = 0; k < times; ++k) {
      auto incoming = t_.recv_async(left(1), in);
      auto outgoing = t_.send_async(right(1), std::span<std::byte const>(out_).first(bytes));
      t_.wait(incoming);
      t_.wait(outgoing);
    }
    return seconds_since(start) / times;
  }

  /// Seconds of @p count messages to each of the @p peers on the right, all started before the first wait.
  double burst(std::size_t bytes, int count, int peers) {
    std::span<std::byte> const in = room(static_cast<std::size_t>(count * peers), bytes);
    std::vector<typename T::request> requests;
    requests.reserve(static_cast<std::size_t>(2 * count * peers));
    transport::barrier(t_);
    auto const start = std::chrono::steady_clock::now();
    for (int k = 0; k < count * peers; ++k)
      requests.push_back(
          t_.recv_async(left(1 + k % peers), in.subspan(static_cast<std::size_t>(k) * bytes, bytes)));
    for (int k = 0; k < count * peers; ++k)
      requests.push_back(t_.send_async(right(1 + k % peers), std::span<std::byte const>(out_).first(bytes)));
    for (auto& q : requests) t_.wait(q);
    return seconds_since(start);
  }

  /// Seconds of @p count messages to the neighbor with a few in flight, as in calls.
  double stream(std::size_t bytes, int count) {
    std::span<std::byte> const in = room(under_way, bytes);
    std::vector<typename T::request> incoming, outgoing;
    incoming.reserve(static_cast<std::size_t>(count));
    outgoing.reserve(static_cast<std::size_t>(count));
    transport::barrier(t_);
    auto const start = std::chrono::steady_clock::now();
    for (int k = 0; k < count + under_way; ++k) {
      if (k >= under_way) {
        t_.wait(incoming[static_cast<std::size_t>(k - under_way)]);
        t_.wait(outgoing[static_cast<std::size_t>(k - under_way)]);
      }
      if (k >= count) continue;
      incoming.push_back(
          t_.recv_async(left(1), in.subspan(static_cast<std::size_t>(k % under_way) * bytes, bytes)));
      outgoing.push_back(t_.send_async(right(1), std::span<std::byte const>(out_).first(bytes)));
    }
    return seconds_since(start);
  }

 private:
  static constexpr int under_way = 4;
  int right(int distance) const { return (t_.rank() + distance) % t_.size(); }
  int left(int distance) const { return (t_.rank() + t_.size() - distance) % t_.size(); }
  std::span<std::byte> room(std::size_t messages, std::size_t bytes) {
    if (in_.size() < messages * bytes) in_.resize(messages * bytes);
    return std::span(in_).first(messages * bytes);
  }

  struct bytes_of {
    std::vector<std::byte> out, in;
  };
  T& t_;
  std::shared_ptr<bytes_of> memory_ = std::make_shared<bytes_of>();
  std::vector<std::byte>&out_ = memory_->out, &in_ = memory_->in;
};

}  // namespace GLOBALQ_ABI::model::detail
