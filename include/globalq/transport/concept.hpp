// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: moves bytes between workers.

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
  /// The longest time that one wait may take; then it throws transport_error.
  std::chrono::nanoseconds deadline = std::chrono::minutes{10};
};

}  // namespace transport

/// @brief One worker's endpoint: it has a rank, and sends and receives ranges of bytes.
///
/// The members:
/// - `rank()` is the number of this worker, in [0, size()); `size()` is the number of workers, at least 1.
/// - `send_async(peer, bytes)` and `recv_async(peer, bytes)` start a transfer and may return before it is
///   complete. Until `wait(request)` has returned, a sender must not write to the bytes and a receiver must not
///   access them. Empty ranges are messages too.
/// - Messages from one worker to another arrive in the order in which they were sent; the k-th send matches
///   the k-th receive. Both have the same size; if sizes differ, the receiver throws transport_error, and the
///   sender may.
/// - `wait(request)` returns when the transfer is complete. For a finished or default-constructed request it
///   returns at once. A worker may wait for its requests in any order.
/// - A transport throws transport_error if it cannot move bytes, and never blocks forever: a deadline ends every
///   wait, even if a peer left, never made its call or hangs.
/// - One thread at a time uses an endpoint, and all workers make their calls over it in the same order, as with MPI and
///   NCCL: two like calls in opposite order would mix their results. Give each thread an endpoint of its own: another
///   transport::mpi on the communicator, or duplicate() of named_memory and of the endpoints of threads.
/// - Destroying a request before waiting for it (during an exception) gives up its transfer. Declare buffers
///   before requests, so that buffers outlive requests.
///
/// Optional members: see OwnAllgather, OwnAllreduceSum, OwnBytesSent, OwnName, OwnExecution, OnStream,
/// OwnDeviceMemory, OwnChunkBytes and OwnRetain. A type that has the members is a transport; it needs no registration.
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

/// @brief A number type that a transport may be able to add.
template <class Value>
concept Summand = std::same_as<Value, std::int8_t> || std::same_as<Value, std::int16_t> ||
    std::same_as<Value, std::int32_t> || std::same_as<Value, float>;

/// @brief Has its own `allgather(mine, all)`: slot r of `all` becomes the bytes of worker r.
/// @shape mine: n bytes, the same n on every worker; all: size() * n bytes; mine may be slot rank() of all
template <class T>
concept OwnAllgather = Transport<T> &&
    requires(T& t, std::span<std::byte const> mine, std::span<std::byte> all) {
  { t.allgather(mine, all) } -> std::same_as<void>;
};

/// @brief Has its own `allreduce_sum(values)`: every worker's values become the sum over all workers.
///
/// Sums of integers are exact if they fit (the caller provides headroom). Sums of float have the same bits on every
/// worker. Only schedule::native requires this member.
/// @shape values: n values, the same n on every worker
template <class T, class Value>
concept OwnAllreduceSum = Transport<T> && Summand<Value> && requires(T& t, std::span<Value> values) {
  { t.allreduce_sum(values) } -> std::same_as<void>;
};

/// @brief Adds every Summand type.
template <class T>
concept AddsSummands = OwnAllreduceSum<T, std::int8_t> && OwnAllreduceSum<T, std::int16_t> &&
    OwnAllreduceSum<T, std::int32_t> && OwnAllreduceSum<T, float>;

/// @brief Counts the bytes that this worker has sent since its construction.
template <class T>
concept OwnBytesSent = Transport<T> && requires(T const& t) {
  { t.bytes_sent() } -> std::same_as<std::uint64_t>;
};

/// @brief Has a name, for reports.
template <class T>
concept OwnName = Transport<T> && requires(T const& t) {
  { t.name() } -> std::convertible_to<std::string_view>;
};

/// @brief Provides the Kokkos execution space of kernels if the caller names none.
template <class T>
concept OwnExecution = Transport<T> && requires(T& t) {
  typename T::execution_space;
  { t.execution() } -> std::convertible_to<typename T::execution_space>;
};

/// @brief Moves memory of its execution space, ordered with the work that is enqueued on execution().
///
/// `on_stream` is true. wait() does not block the host; it orders the stream: work that is enqueued after
/// wait(request) runs after the transfer. If the host takes part in every message, `host_driven` says so;
/// errors are then thrown before payload moves. Otherwise kernels detect them on the stream.
template <class T>
concept OnStream = OwnExecution<T> && bool{T::on_stream};

/// @brief Whether the host takes part in every message of a transport; always true in host memory.
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

/// @brief Moves host memory and, for some peers, also device memory: `takes_device_memory(peer)`.
///
/// The host waits for both kinds of messages, so device memory must be ready before the call.
template <class T>
concept OwnDeviceMemory = Transport<T> && requires(T const& t, int peer) {
  { t.takes_device_memory(peer) } -> std::same_as<bool>;
};

/// @brief Recommends a message size in bytes for vectors that are sent in chunks; the same on every worker.
template <class T>
concept OwnChunkBytes = Transport<T> && requires(T const& t) {
  { t.chunk_bytes() } -> std::same_as<std::size_t>;
};

/// Message size in bytes if neither the caller nor the transport sets one. In memory that workers share, shorter
/// messages cost up to a tenth of the time, and longer ones do not fit a cache.
inline constexpr std::size_t default_chunk_bytes = std::size_t{256} << 10;

/// @brief The message size of these workers in bytes.
template <class T>
std::size_t chunk_bytes_of(T const& workers) {
  if constexpr (OwnChunkBytes<T>)
    return workers.chunk_bytes();
  else
    return default_chunk_bytes;
}

/// @brief Keeps a caller's buffers alive for transfers that can neither finish nor be canceled.
///
/// A caller that abandons a transfer passes its buffers on: `retain(buffers)`.
template <class T>
concept OwnRetain = Transport<T> && requires(T& t, std::shared_ptr<void> buffers) {
  { t.retain(buffers) } -> std::same_as<void>;
};

}  // namespace transport
}  // namespace GLOBALQ_ABI
