// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: what moves the bytes of one worker to the others, and back.

#include "../core/detail/abi.hpp"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace GLOBALQ_ABI {
namespace transport {

/// @brief Settings that every transport of the library takes.
struct options {
  /// The longest time that one wait may take before it throws transport_error.
  std::chrono::nanoseconds deadline = std::chrono::minutes{10};
};

}  // namespace transport

/// @brief One worker's endpoint: it knows who it is, and sends and receives ranges of bytes.
///
/// What the members mean:
/// - `rank()` is this worker's number, in [0, size()); `size()` is the number of workers, at least 1.
/// - `send_async(peer, bytes)` and `recv_async(peer, bytes)` start a transfer and may return before it is
///   done. The bytes belong to the transport until `wait(request)` has returned: a sender does not write
///   to them, a receiver does not touch them. Empty ranges are messages too.
/// - Messages from one worker to another arrive in the order in which they were sent, and the k-th send is
///   paired with the k-th receive. Both name the same size: where they differ, the receiver throws
///   transport_error, and the sender may.
/// - `wait(request)` returns when the transfer is done. Waiting for a finished or a default-constructed
///   request returns at once. Requests of a worker may be waited for in any order.
/// - A transport throws transport_error when it cannot move bytes, and never blocks for ever: whether a peer
///   left, never called or hangs, a wait ends by a deadline.
/// - A request that is destroyed before it was waited for (by an exception) gives up its transfer. Buffers
///   therefore are declared before requests, so that they outlive them.
///
/// Optional members, used when present: see OwnAllgather, OwnAllreduceSum, OwnBytesSent, OwnName,
/// OwnExecution, OnStream, OwnChunkBytes and OwnRetain. No registration is needed: a type that has the members is a transport.
template <class T>
concept Transport = requires {
  typename T::request;
}
&&std::default_initializable<typename T::request>&& std::movable<typename T::request>&& requires(
    T& t, T const& fixed, int peer, std::span<std::byte const> outgoing, std::span<std::byte> incoming,
    typename T::request& request) {
  { fixed.rank() } -> std::same_as<int>;
  { fixed.size() } -> std::same_as<int>;
  { t.send_async(peer, outgoing) } -> std::same_as<typename T::request>;
  { t.recv_async(peer, incoming) } -> std::same_as<typename T::request>;
  { t.wait(request) } -> std::same_as<void>;
};

namespace transport {

/// @brief A number type that a transport can be asked to add.
template <class Lane>
concept SumLane = std::same_as<Lane, std::int8_t> || std::same_as<Lane, std::int16_t> ||
    std::same_as<Lane, std::int32_t> || std::same_as<Lane, float>;

/// @brief Has its own `allgather(mine, all)`: slot r of `all` becomes the bytes of worker r.
/// @shape mine: n bytes, the same n on every worker; all: size() * n bytes; mine may be the own slot of all
template <class T>
concept OwnAllgather = Transport<T> &&
    requires(T& t, std::span<std::byte const> mine, std::span<std::byte> all) {
  { t.allgather(mine, all) } -> std::same_as<void>;
};

/// @brief Has its own `allreduce_sum(lanes)`: every worker's lanes become the sum over all workers.
///
/// Sums of integers are exact (the caller sees to headroom). Sums of float hold the same bits on every
/// worker. schedule::native needs this member; no other schedule does.
/// @shape lanes: n values, the same n on every worker
template <class T, class Lane>
concept OwnAllreduceSum = Transport<T> && SumLane<Lane> && requires(T& t, std::span<Lane> lanes) {
  { t.allreduce_sum(lanes) } -> std::same_as<void>;
};

/// @brief Adds each of them.
template <class T>
concept AddsLanes = OwnAllreduceSum<T, std::int8_t> && OwnAllreduceSum<T, std::int16_t> &&
    OwnAllreduceSum<T, std::int32_t> && OwnAllreduceSum<T, float>;

/// @brief Counts the bytes that this worker has handed over for sending since it was made.
template <class T>
concept OwnBytesSent = Transport<T> && requires(T const& t) {
  { t.bytes_sent() } -> std::same_as<std::uint64_t>;
};

/// @brief Has a name, for reports.
template <class T>
concept OwnName = Transport<T> && requires(T const& t) {
  { t.name() } -> std::convertible_to<std::string_view>;
};

/// @brief Knows the Kokkos execution space that kernels use when the caller names none.
template <class T>
concept OwnExecution = Transport<T> && requires(T& t) {
  typename T::execution_space;
  { t.execution() } -> std::convertible_to<typename T::execution_space>;
};

/// @brief Moves memory of its execution space, in order with what is enqueued on execution().
///
/// `on_stream` is true, and a wait is an order on that instance, not a pause of the host: what is enqueued after
/// wait(request) runs after the transfer. A transport whose host takes part in every message says so by `host_driven`:
/// errors are then thrown before any payload moves, where else they are found on the stream.
template <class T>
concept OnStream = OwnExecution<T> && bool{T::on_stream};

/// @brief Whether the host takes part in every message of a transport: in those of host memory it does.
template <Transport T>
bool host_driven([[maybe_unused]] T const& t) {
  if constexpr (requires { bool{T::host_driven}; }) {
    return T::host_driven;
  } else if constexpr (requires { bool{t.host_driven()}; }) {
    return t.host_driven();
  } else {
    return !OnStream<T>;
  }
}

/// @brief Moves host memory, and to and from some peers device memory as well: `takes_device_memory(peer)`.
///
/// The host waits for a message of either kind, so device memory must be ready before the call.
template <class T>
concept OwnDeviceMemory = Transport<T> && requires(T const& t, int peer) {
  { t.takes_device_memory(peer) } -> std::same_as<bool>;
};

/// @brief Knows how many bytes a message had best have when a vector is sent in many; the same on every worker.
template <class T>
concept OwnChunkBytes = Transport<T> && requires(T const& t) {
  { t.chunk_bytes() } -> std::same_as<std::size_t>;
};

/// Bytes of a message where neither the caller nor the transport names a number: in memory that workers share, shorter ones
/// cost up to a tenth of the time, longer ones no longer fit a cache.
inline constexpr std::size_t default_chunk_bytes = std::size_t{256} << 10;

/// @brief Keeps a caller's buffers alive for transfers that can neither finish nor be canceled.
///
/// A caller that gives up in the middle of a transfer hands its buffers over: `retain(buffers)`.
template <class T>
concept OwnRetain = Transport<T> && requires(T& t, std::shared_ptr<void> buffers) {
  { t.retain(buffers) } -> std::same_as<void>;
};

}  // namespace transport
}  // namespace GLOBALQ_ABI
