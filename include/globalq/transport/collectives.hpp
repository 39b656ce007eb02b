// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: exchanges of small values among all workers, for any transport.
///
/// All workers call each of these functions, in the same order, with the same sizes. Nothing is allocated.

#include "../core/error.hpp"
#include "concept.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace GLOBALQ_ABI::transport {
namespace detail {

/// "0.3 s"
inline std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

/// The longest time of one wait, at most a year so that clocks do not overflow. Throws if it is not positive.
inline std::chrono::nanoseconds deadline_of(options const& settings, char const* transport) {
  if (settings.deadline <= std::chrono::nanoseconds::zero())
    throw configuration_error{
        std::string{"globalq: transport::"} + transport +
        ": the deadline is not above 0 and would end every wait at once; give a longer time"};
  return std::min<std::chrono::nanoseconds>(settings.deadline, std::chrono::hours{24 * 365});
}

/// Throws unless `peer` is a worker.
template <class T>
void expect_peer(T const& t, char const* operation, int peer) {
  if (peer < 0 || peer >= t.size())
    throw configuration_error{globalq::detail::worker_message(
        operation, t.rank(), t.size(), globalq::detail::joined({"there is no worker ", peer}),
        globalq::detail::joined({"pass a rank from 0 to ", t.size() - 1}))};
}

/// Throws unless `all` has exactly the size of the bytes of all workers.
template <class T>
void expect_room_for_all(T const& t, std::size_t mine_bytes, std::size_t all_bytes) {
  auto const workers = static_cast<std::size_t>(t.size());
  if (all_bytes % workers != 0 || all_bytes / workers != mine_bytes)
    throw configuration_error{globalq::detail::worker_message(
        "allgather", t.rank(), t.size(),
        globalq::detail::joined(
            {mine_bytes, " bytes of each worker do not fill the ", all_bytes, " bytes given for the result"}),
        globalq::detail::joined({"give ", workers, " times the bytes of one worker"}))};
}

/// Copies a worker's bytes to its slot, unless they are already there.
inline void copy_to_own_slot(std::span<std::byte const> mine, std::span<std::byte> all, int rank) {
  std::byte* const slot = all.data() + static_cast<std::size_t>(rank) * mine.size();
  if (!mine.empty() && slot != mine.data()) std::memmove(slot, mine.data(), mine.size());
}

/// allgather() by n - 1 sends: in round k every worker sends to the k-th worker after it.
template <Transport T>
void allgather_by_messages(T& t, std::span<std::byte const> mine, std::span<std::byte> all) {
  int const workers = t.size();
  copy_to_own_slot(mine, all, t.rank());
  for (int distance = 1; distance < workers; ++distance) {
    int const to = (t.rank() + distance) % workers;
    int const from = (t.rank() - distance + workers) % workers;
    auto const slot = all.subspan(static_cast<std::size_t>(from) * mine.size(), mine.size());
    auto incoming = t.recv_async(from, slot);
    auto outgoing = t.send_async(to, mine);
    t.wait(incoming);
    t.wait(outgoing);
  }
}

}  // namespace detail

/// @brief Gives every worker the bytes of all: slot r of `all` becomes `mine` of worker r.
///
/// Uses the transport's own allgather if it has one, else n - 1 sends.
/// @param t     endpoint of this worker; all workers call
/// @param mine  this worker's bytes; may be its own slot of `all`
/// @param all   the result, in order of ranks
/// @shape       mine: b bytes, the same b on every worker; all: size() * b bytes
/// @throws      configuration_error when `all` has another size; transport_error
/// @complexity  (n - 1) b bytes sent; n - 1 rounds without an own allgather
template <Transport T>
void allgather(T& t, std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::expect_room_for_all(t, mine.size(), all.size());
  if constexpr (OwnAllgather<T>) {
    t.allgather(mine, all);
  } else if constexpr (requires {
                         bool{t.own_allgather(mine, all)};
                       }) {  // type-erased endpoint: known at run time
    if (!t.own_allgather(mine, all)) detail::allgather_by_messages(t, mine, all);
  } else {
    detail::allgather_by_messages(t, mine, all);
  }
}

/// @brief Returns f(). If f throws, its transfers may still use @p memory; the transport then keeps the memory alive.
template <Transport T, class F>
auto keeping([[maybe_unused]] T& t, [[maybe_unused]] std::shared_ptr<void> const& memory, F const& f) {
  try {
    return f();
  } catch (...) {
    if constexpr (OwnRetain<T>) t.retain(memory);
    throw;
  }
}

/// @brief As keeping(), for memory that calls reuse; memory that the transport kept is replaced before the next call.
template <Transport T, class Memory, class F>
auto keeping_reused(T& t, std::shared_ptr<Memory>& memory, F const& f) {
  if (memory.use_count() > 1) memory = std::make_shared<Memory>();
  return keeping(t, memory, f);
}

/// @brief Gives every worker the values of all: `all[r]` becomes `mine` of worker r.
///
/// Sends the object representation: workers must have the same, padding included. If the exchange is given up,
/// transfers may still write to `all` (see keeping()).
/// @shape   all: size() values
/// @throws  configuration_error when `all` has another size; transport_error
template <Transport T, class Value>
requires std::is_trivially_copyable_v<Value>
void allgather_value(T& t, Value const& mine, std::span<Value> all) {
  if constexpr (OwnAllgather<T>) {
    allgather(t, std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(all));
  } else {
    auto const kept = std::make_shared<Value>(mine);
    keeping(t, kept, [&] {
      allgather(t, std::as_bytes(std::span{kept.get(), 1}), std::as_writable_bytes(all));
    });
  }
}

/// @brief Gives every worker the bytes of worker `root`, along a binomial tree.
/// @shape       bytes: b on every worker
/// @throws      configuration_error when there is no such root; transport_error
/// @complexity  ceil(log2 n) rounds; at most ceil(log2 n) b bytes sent by one worker
template <Transport T>
void broadcast(T& t, int root, std::span<std::byte> bytes) {
  detail::expect_peer(t, "broadcast", root);
  int const workers = t.size();
  int const place = (t.rank() - root + workers) % workers;  // the root has place 0
  int reach = 1;                                            // number of places that hold the bytes so far
  if (place != 0) {
    while (reach * 2 <= place) reach *= 2;
    auto incoming = t.recv_async((place - reach + root) % workers, bytes);
    t.wait(incoming);
    reach *= 2;
  }
  for (; place + reach < workers; reach *= 2) {
    auto outgoing = t.send_async((place + reach + root) % workers, bytes);
    t.wait(outgoing);
  }
}

/// @brief Returns the value of worker `root` on every worker.
/// @throws  configuration_error when there is no such root; transport_error
template <Transport T, class Value>
requires std::is_trivially_copyable_v<Value> Value broadcast_value(T& t, int root, Value value) {
  auto const kept = std::make_shared<Value>(value);
  keeping(t, kept, [&] { broadcast(t, root, std::as_writable_bytes(std::span{kept.get(), 1})); });
  return *kept;
}

/// @brief Returns once every worker has called it.
/// @throws      transport_error
/// @complexity  ceil(log2 n) rounds of empty messages
template <Transport T>
void barrier(T& t) {
  int const workers = t.size();
  for (int distance = 1; distance < workers; distance *= 2) {
    auto incoming = t.recv_async((t.rank() - distance + workers) % workers, {});
    auto outgoing = t.send_async((t.rank() + distance) % workers, {});
    t.wait(incoming);
    t.wait(outgoing);
  }
}

}  // namespace GLOBALQ_ABI::transport
