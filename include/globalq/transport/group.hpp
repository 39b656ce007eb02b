// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: some of the workers of a transport, numbered anew.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "globalq/core/error.hpp"
#include "globalq/transport/concept.hpp"

namespace GLOBALQ_ABI::transport {

namespace detail {

/// Passes messages on under other numbers. The list of ranks must outlive it.
template <Transport T>
class renumbered {
 public:
  using request = typename T::request;

  /// @param ranks  of the group's workers, in the order of their new numbers
  /// @param mine   this worker's new number
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

  /// @brief The rank of a worker of the group in the transport that it is a part of.
  [[nodiscard]] int rank_outside(int peer) const { return rank_of("rank_outside", peer); }

 private:
  int rank_of(char const* operation, int peer) const {
    if (peer < 0 || peer >= size())
      throw configuration_error(globalq::detail::worker_message(
          operation, mine_, size(), globalq::detail::joined({"there is no worker ", peer, " in this group"}),
          globalq::detail::joined({"name a worker between 0 and ", size() - 1})));
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

/// The execution space of a transport that has one.
template <class T>
struct space_of {};
template <OwnExecution T>
struct space_of<T> {
  using execution_space = typename T::execution_space;
};

}  // namespace detail

/// @brief A transport among some of the workers of another one, numbered in the order of a list.
///
/// Only workers in the list make one, all with the same list. Messages are those of the whole transport: between two
/// workers, what is sent through a group and past it is paired in the order in which it was sent. Transport errors name
/// ranks of the whole transport.
///
/// @code
/// gq::transport::group odd{workers, {1, 3, 5}};   // on workers 1, 3 and 5, which are 0, 1 and 2 in it
/// gq::allreduce_mean mean{odd, op, gq::schedule::ring{}};
/// @endcode
/// @tparam T  a transport of host memory
/// @note Not to be shared by threads; the transport must outlive it.
template <Transport T>
class group : private detail::rank_list, public detail::renumbered<T>, public detail::space_of<T> {
  static_assert(
      !OnStream<T>,
      "globalq: transport::group: this transport moves memory on a stream; make the group of its host "
      "transport, and give that to transport::staged");

 public:
  /// @param workers  this worker's endpoint
  /// @param ranks    different workers of it, this one among them
  /// @throws configuration_error when a rank is no worker's, is named twice, or the own one is missing
  group(T& workers, std::vector<int> ranks)
      : detail::rank_list{std::move(ranks)},
        detail::renumbered<T>(workers, detail::rank_list::list, place_in(detail::rank_list::list, workers)),
        workers_(workers) {}
  group(group const&) = delete;
  group& operator=(group const&) = delete;

  /// @brief Where kernels run when the caller names no space.
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
          globalq::detail::joined({"list different ranks between 0 and ", workers.size() - 1,
                                   ", the own one among them; only workers in the list make the group"})));
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
