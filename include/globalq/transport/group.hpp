// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: a subset of the workers of a transport, with new ranks.

#include "../core/error.hpp"
#include "concept.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport {

namespace detail {

/// Translates ranks and forwards messages. The list of ranks must outlive it.
template <Transport T>
class renumbered {
 public:
  using request = typename T::request;

  /// @param ranks  ranks of the group's workers, in the order of their new ranks
  /// @param mine   this worker's new rank
  renumbered(T& workers, std::span<int const> ranks, int mine)
      : workers_(workers), ranks_(ranks), mine_(mine) {}

  [[nodiscard]] int rank() const noexcept { return mine_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

  request send_async(int peer, std::span<std::byte const> bytes) {
    int const rank = rank_of("send", peer);
    bytes_sent_ += bytes.size();
    return workers_.send_async(rank, bytes);
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    return workers_.recv_async(rank_of("receive", peer), bytes);
  }
  void wait(request& posted) { workers_.wait(posted); }

  /// @brief Bytes that this worker sent within the group.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  [[nodiscard]] std::size_t chunk_bytes() const requires OwnChunkBytes<T> { return workers_.chunk_bytes(); }

  void retain(std::shared_ptr<void> buffers) requires OwnRetain<T> { workers_.retain(std::move(buffers)); }

  void expect_threads() requires requires(T& t) { t.expect_threads(); }
  { workers_.expect_threads(); }

  [[nodiscard]] bool takes_device_memory(int peer) const requires OwnDeviceMemory<T> {
    return workers_.takes_device_memory(ranks_[static_cast<std::size_t>(peer)]);
  }

  /// @brief The rank in the underlying transport of a worker of the group.
  [[nodiscard]] int rank_outside(int peer) const { return rank_of("rank_outside", peer); }

 private:
  int rank_of(char const* operation, int peer) const {
    if (peer < 0 || peer >= size())
      throw configuration_error(globalq::detail::worker_message(
          operation, mine_, size(), globalq::detail::joined({"there is no worker ", peer, " in this group"}),
          globalq::detail::joined({"pass a rank from 0 to ", size() - 1})));
    return ranks_[static_cast<std::size_t>(peer)];
  }

  T& workers_;
  std::span<int const> ranks_;
  int mine_;
  std::uint64_t bytes_sent_ = 0;
};

/// A list that a base class can refer to.
struct rank_list {
  std::vector<int> list;
};

/// The execution space of a transport, if it has one.
template <class T>
struct space_of {};
template <OwnExecution T>
struct space_of<T> {
  using execution_space = typename T::execution_space;
};

}  // namespace detail

/// @brief A transport among a subset of the workers of another one, with ranks in the order of a list.
///
/// Every worker in the list, and no other, constructs it with the same list. It uses the messages of the underlying
/// transport: between two workers, sends match receives in order, whether they go through the group or not. Transport
/// errors name ranks of the underlying transport.
///
/// @code
/// gq::transport::group odd{workers, {1, 3, 5}};   // on workers 1, 3 and 5, whose ranks in it are 0, 1 and 2
/// gq::allreduce_mean mean{odd, op, gq::schedule::ring{}};
/// @endcode
/// @tparam T  a host-memory transport
/// @note Not thread-safe; the transport must outlive it.
template <Transport T>
class group : private detail::rank_list, public detail::renumbered<T>, public detail::space_of<T> {
  static_assert(
      !OnStream<T>,
      "globalq: transport::group: this transport moves memory on a stream; make the group of its host "
      "transport, and give that to transport::staged");

 public:
  /// @param workers  this worker's endpoint
  /// @param ranks    different ranks of workers, this one's among them
  /// @throws configuration_error if a rank does not exist or appears twice, or this worker's is missing
  group(T& workers, std::vector<int> ranks)
      : detail::rank_list{std::move(ranks)},
        detail::renumbered<T>(workers, detail::rank_list::list, place_in(detail::rank_list::list, workers)),
        workers_(workers) {}
  group(group const&) = delete;
  group& operator=(group const&) = delete;

  /// @brief Execution space of kernels if the caller names none.
  [[nodiscard]] decltype(auto) execution() requires OwnExecution<T> { return workers_.execution(); }

  [[nodiscard]] std::string name() const {
    std::string text = globalq::detail::joined({"group of ", this->size()});
    if constexpr (OwnName<T>) text += globalq::detail::joined({" of ", workers_.name()});
    return text;
  }

 private:
  static int place_in(std::vector<int> const& ranks, T const& workers) {
    auto const refuse = [&](std::string const& what) {
      throw configuration_error(globalq::detail::worker_message(
          "group", workers.rank(), workers.size(), what,
          globalq::detail::joined(
              {"list different ranks from 0 to ", workers.size() - 1,
               ", this one's among them; only workers in the list construct the group"})));
    };
    int place = -1;
    std::vector<bool> seen(static_cast<std::size_t>(workers.size()), false);
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      if (ranks[k] < 0 || ranks[k] >= workers.size())
        refuse(globalq::detail::joined({"there is no worker ", ranks[k]}));
      if (seen[static_cast<std::size_t>(ranks[k])])
        refuse(globalq::detail::joined({"worker ", ranks[k], " is named twice"}));
      seen[static_cast<std::size_t>(ranks[k])] = true;
      if (ranks[k] == workers.rank()) place = static_cast<int>(k);
    }
    if (place < 0) refuse("the list of ranks does not hold this worker");
    return place;
  }

  T& workers_;
};

template <class T>
group(T&, std::vector<int>) -> group<T>;
template <class T>
group(T&, std::initializer_list<int>) -> group<T>;

}  // namespace GLOBALQ_ABI::transport
