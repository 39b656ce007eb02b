// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: a worker of a cluster of threads: its messages and its collectives.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "collectives.hpp"
#include "detail/threads_run-inl.hpp"
#include "detail/threads_world.hpp"
#include "threads.hpp"

namespace GLOBALQ_ABI::transport {

GLOBALQ_DECL threads::endpoint::endpoint(detail::world& all, int rank, std::shared_ptr<detail::world> own)
    : own_{std::move(own)},
      world_{all},
      self_{all.at(rank)},
      polls_{static_cast<unsigned>(all.size) <= std::thread::hardware_concurrency() ? 200 : 0} {}

GLOBALQ_DECL threads::endpoint::~endpoint() {
  if (own_) world_.leave(rank());
}

GLOBALQ_DECL std::unique_ptr<threads::endpoint> threads::endpoint::duplicate() {
  std::shared_ptr<detail::world> made;
  if (rank() == 0) {
    try {
      made = std::make_shared<detail::world>(size(), world_.deadline, &world_);
      std::lock_guard const lock{world_.family};
      std::erase_if(world_.duplicates, [](auto const& other) { return other.expired(); });
      world_.duplicates.push_back(made);
    } catch (std::bad_alloc const&) {
      made.reset();
    }
  }
  detail::world* const mine = made.get();
  std::vector<detail::world*> all(world_.crew.size());
  allgather(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}));
  if (rank() != 0) {
    std::lock_guard const lock{world_.family};
    for (auto const& other : world_.duplicates)
      if (auto const alive = other.lock(); alive.get() == all[0]) made = alive;
  }
  meet("duplicate");  // worker 0 keeps the world alive until then
  if (!made) throw std::bad_alloc{};
  return std::unique_ptr<endpoint>{new endpoint{*made, rank(), made}};
}

GLOBALQ_DECL int threads::endpoint::rank() const noexcept { return self_.rank; }
GLOBALQ_DECL int threads::endpoint::size() const noexcept { return world_.size; }

GLOBALQ_DECL void threads::endpoint::request::finish() {
  operation_->owner->give_back(*operation_);
  operation_ = nullptr;
}

GLOBALQ_DECL void threads::endpoint::request::give_up() {
  detail::withdraw(*operation_);
  finish();
}

GLOBALQ_DECL threads::endpoint::execution_space const& threads::endpoint::execution() {
  if (!space_) {
    detail::expect_kokkos("threads");
    space_.emplace(Kokkos::NewInstance{});
  }
  return *space_;
}

GLOBALQ_DECL threads::endpoint::request threads::endpoint::send_async(int peer,
                                                                      std::span<std::byte const> bytes) {
  detail::expect_peer(*this, "send", peer);
  bytes_sent_ += bytes.size();
  return post(true, peer, const_cast<std::byte*>(bytes.data()), bytes.size());
}

GLOBALQ_DECL threads::endpoint::request threads::endpoint::recv_async(int peer, std::span<std::byte> bytes) {
  detail::expect_peer(*this, "recv", peer);
  return post(false, peer, bytes.data(), bytes.size());
}

template <class Ready, class Gone>
threads::endpoint::wait_result threads::endpoint::await(Ready const& ready, Gone const& gone) {
  for (int i = 0; i < polls_; ++i)
    if (ready()) return wait_result::ready;
  for (int i = 0; i < 50; ++i) {
    if (ready()) return wait_result::ready;
    std::this_thread::yield();
  }
  auto const until = std::chrono::steady_clock::now() + world_.deadline;
  std::unique_lock lock{self_.mutex};
  self_.asleep.store(true);
  auto result = wait_result::ready;
  while (!ready()) {
    bool const failed = world_.failed.load();
    bool const left = gone();
    bool const late = std::chrono::steady_clock::now() >= until;
    if (failed || left || late) {
      if (!ready()) result = failed ? wait_result::failed : left ? wait_result::left : wait_result::late;
      break;
    }
    self_.awake.wait_until(lock, until);
  }
  self_.asleep.store(false);
  return result;
}

GLOBALQ_DECL void threads::endpoint::wait(request& transfer) {
  detail::operation* const op = transfer.operation_;
  if (op == nullptr) return;
  auto const finished = [op] {
    auto const state = op->state.load();
    return state == detail::progress::done || state == detail::progress::mismatch;
  };
  wait_result const result = await(finished, [this, op] { return world_.at(op->peer).gone.load(); });
  if (result == wait_result::ready && op->state.load() == detail::progress::done)
    transfer.finish();
  else
    fail_transfer(*op, result);
}

/// Calls leave() unless the collective was completed: also for exceptions that are not from stop(), for example
/// std::bad_alloc in a message, and if the thread ends, which std::uncaught_exceptions() does not count.
struct threads::endpoint::leaving {
  endpoint& self;
  bool completed;
  ~leaving() {
    if (!completed) self.leave("it did not complete a collective");
  }
};

struct threads::endpoint::shown {
  detail::world& by;
  std::size_t turn;
  std::byte* operator()(int from) const { return by.at(from).offers[turn].data; }
};

template <class Body>
void threads::endpoint::collective(char const* call, std::byte* data, std::size_t bytes, Body const& body) {
  collective(
      call, data, bytes,
      [](void const* what, shown const& data_of, bool copies) {
        (*static_cast<Body const*>(what))(data_of, copies);
      },
      &body);
}

GLOBALQ_DECL void threads::endpoint::collective(char const* call, std::byte* data, std::size_t bytes,
                                                void (*body)(void const* what, shown const& data_of,
                                                             bool copies),
                                                void const* what) {
  std::size_t const turn = collectives_++ % 2;
  detail::offer& mine = self_.offers[turn];
  bool const small = bytes <= detail::offer::small_bytes;
  mine.call = call;
  mine.bytes = bytes;
  mine.data = small ? mine.copy.data() : data;
  if (small && bytes != 0) std::memcpy(mine.copy.data(), data, bytes);
  leaving on_error{*this, small};  // others read small data from the copy
  meet(call);
  expect_equal_offers(turn);
  shown const data_of{world_, turn};
  if (small) return body(what, data_of, true);
  self_.touching.store(true);
  bool const failed =
      world_.failed.load();  // another worker may then be leaving, and its bytes become invalid
  if (!failed) body(what, data_of, false);
  self_.touching.store(false);
  if (failed) stop_because_of_failure(call);
  meet(call);
  on_error.completed = true;
}

GLOBALQ_DECL void threads::endpoint::allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::expect_room_for_all(*this, mine.size(), all.size());
  detail::copy_to_own_slot(mine, all, rank());
  if (size() == 1) return;
  bytes_sent_ += mine.size() * (world_.crew.size() - 1);
  collective("allgather", const_cast<std::byte*>(mine.data()), mine.size(), [&](shown const& data_of, bool) {
    for (int from = 0; from < size(); ++from)
      if (from != rank() && !mine.empty())
        std::memcpy(all.data() + static_cast<std::size_t>(from) * mine.size(), data_of(from), mine.size());
  });
}

template <class Value>
void threads::endpoint::sum_slice(std::size_t first, std::size_t last, shown const& data_of,
                                  Value* out) const {
  constexpr std::size_t tile = 4096 / sizeof(Value);
  Value sums[tile];
  for (std::size_t at = first; at < last; at += tile) {
    std::size_t const count = std::min(tile, last - at);
    std::memcpy(sums, data_of(0) + at * sizeof(Value), count * sizeof(Value));
    for (int from = 1; from < size(); ++from)
      detail::add_values(sums, reinterpret_cast<Value const*>(data_of(from)) + at, count);
    if (out != nullptr) {
      std::copy_n(sums, count, out + at);
      continue;
    }
    for (int to = 0; to < size(); ++to)
      std::memcpy(data_of(to) + at * sizeof(Value), sums, count * sizeof(Value));
  }
}

template <Summand Value>
void threads::endpoint::allreduce_sum(std::span<Value> values) {
  if (size() == 1) return;
  bytes_sent_ += values.size_bytes();
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  collective(detail::sum_call<Value>(), bytes, values.size_bytes(), [&](shown const& data_of, bool copies) {
    // without a second barrier, this worker must add all values itself
    if (copies) return sum_slice(0, values.size(), data_of, values.data());
    constexpr std::size_t line = 64 / sizeof(Value);  // workers do not share cache lines
    std::size_t const lines = (values.size() + line - 1) / line;
    auto const workers = world_.crew.size();
    auto const me = static_cast<std::size_t>(rank());
    std::size_t const first = std::min(values.size(), lines * me / workers * line);
    std::size_t const last = std::min(values.size(), lines * (me + 1) / workers * line);
    sum_slice<Value>(first, last, data_of, nullptr);
  });
}

GLOBALQ_DECL std::string threads::endpoint::message(std::string_view operation, std::string_view what,
                                                    std::string_view remedy) const {
  return globalq::detail::worker_message(operation, rank(), size(), what, remedy);
}

GLOBALQ_DECL threads::endpoint::request threads::endpoint::post(bool sends, int peer, std::byte* data,
                                                                std::size_t bytes) {
  detail::channel& line = sends ? world_.between(rank(), peer) : world_.between(peer, rank());
  detail::operation& mine = self_.take();
  mine.data = data;
  mine.bytes = bytes;
  mine.on = &line;
  mine.peer = peer;
  mine.sends = sends;

  detail::operation* other = nullptr;
  {
    std::lock_guard const lock{line.mutex};
    if (line.torn) {
      mine.state.store(detail::progress::withdrawn);  // never done: wait() reports why
      return request{mine};
    }
    if (line.first == nullptr || line.first->sends == sends) {
      mine.state.store(detail::progress::queued);
      line.append(mine);
      return request{mine};
    }
    other = line.first;
    line.remove(*other);
    other->state.store(detail::progress::copying);  // its owner waits for this copy, even to give up
  }
  auto result = detail::progress::done;
  if (other->bytes != bytes) {
    mine.peer_bytes = other->bytes;
    other->peer_bytes = bytes;
    result = detail::progress::mismatch;
  } else if (bytes != 0) {
    std::memmove(sends ? other->data : data, sends ? data : other->data, bytes);
  }
  mine.state.store(result);
  detail::worker& peer_worker = *other->owner;
  other->state.store(result);  // from here on `other` belongs to its owner
  peer_worker.wake();
  return request{mine};
}

GLOBALQ_DECL void threads::endpoint::leave(std::string_view text) noexcept {
  world_.fail(rank(), text);
  for (auto& op : self_.operations) detail::withdraw(op);
  for (auto& other : world_.crew)
    while (&other != &self_ && other.touching.load()) std::this_thread::yield();
}

GLOBALQ_DECL void threads::endpoint::stop(std::string const& text, bool blames_another) {
  leave(text);
  world_.origin.at(rank()).blames_another = blames_another;
  throw transport_error{text};
}

GLOBALQ_DECL void threads::endpoint::stop_because_of_failure(char const* operation) {
  stop(message(operation,
               globalq::detail::joined({"rank ", world_.failed_rank, " failed: ", world_.failed_message}),
               "fix that error first"),
       true);
}

GLOBALQ_DECL void threads::endpoint::fail_transfer(detail::operation& op, wait_result result) {
  char const* const name = op.sends ? "send" : "recv";
  std::string const peer = globalq::detail::joined({"rank ", op.peer});
  std::string const bytes = globalq::detail::joined({op.bytes, " bytes"});
  if (result == wait_result::failed) stop_because_of_failure(name);
  if (result == wait_result::ready)
    stop(message(name,
                 op.sends ? globalq::detail::joined(
                                {"sent ", bytes, " to ", peer, ", which expected ", op.peer_bytes})
                          : globalq::detail::joined(
                                {"expected ", bytes, " from ", peer, ", which sent ", op.peer_bytes}),
                 "use the same size for a send and its receive"),
         false);
  std::string const missing =
      op.sends ? globalq::detail::joined({"receive ", bytes}) : globalq::detail::joined({"send ", bytes});
  if (result == wait_result::left)
    stop(message(name, globalq::detail::joined({peer, " left the run and did not ", missing}),
                 "let every worker make the same calls in the same order"),
         false);
  stop(message(name,
               globalq::detail::joined(
                   {"waited ", detail::seconds_text(world_.deadline), " for ", peer, " to ", missing}),
               "let every worker make the same calls in the same order, or raise options::deadline"),
       false);
}

GLOBALQ_DECL void threads::endpoint::meet(char const* operation) {
  std::uint64_t const meeting = ++meetings_;
  std::uint64_t const all = meeting * world_.crew.size();
  self_.arrived.store(meeting);
  if (world_.arrivals.fetch_add(1) + 1 == all) return world_.wake_all();
  int missing = 0;
  wait_result const result = await([&] { return world_.arrivals.load() >= all; },
                                   [&] {
                                     for (auto& each : world_.crew)
                                       if (each.gone.load() && each.arrived.load() < meeting) {
                                         missing = each.rank;
                                         return true;
                                       }
                                     return false;
                                   });
  if (result == wait_result::ready) return;
  if (result == wait_result::failed) stop_because_of_failure(operation);
  if (result == wait_result::left)
    stop(
        message(operation, globalq::detail::joined({"rank ", missing, " left the run and did not take part"}),
                "let every worker make the same calls in the same order"),
        false);
  std::string late;
  for (auto& each : world_.crew)
    if (each.arrived.load() < meeting)
      late += globalq::detail::joined({(late.empty() ? "rank " : ", rank "), each.rank});
  stop(message(operation,
               globalq::detail::joined(
                   {"waited ", detail::seconds_text(world_.deadline), " for ", late, " to take part"}),
               "let every worker make the same calls in the same order, or raise options::deadline"),
       false);
}

GLOBALQ_DECL void threads::endpoint::expect_equal_offers(std::size_t turn) {
  detail::offer const& first = world_.crew.front().offers[turn];
  for (auto const& each : world_.crew) {
    detail::offer const& other = each.offers[turn];
    if (other.bytes == first.bytes && std::string_view{other.call} == first.call) continue;
    auto const text = [](detail::offer const& of) {
      return globalq::detail::joined({std::string{of.call}, " with ", of.bytes, " bytes"});
    };
    stop(message(first.call,
                 globalq::detail::joined(
                     {"rank 0 called ", text(first), ", but rank ", each.rank, " called ", text(other)}),
                 "let every worker make the same calls with the same sizes"),
         false);
  }
}

#if defined(GLOBALQ_COMPILED)
template void threads::endpoint::allreduce_sum(std::span<std::int8_t>);
template void threads::endpoint::allreduce_sum(std::span<std::int16_t>);
template void threads::endpoint::allreduce_sum(std::span<std::int32_t>);
template void threads::endpoint::allreduce_sum(std::span<float>);

template <>
std::unique_ptr<transport::endpoint> make_endpoint(threads::endpoint& t) {
  return std::make_unique<detail::endpoint_of<threads::endpoint, transport::endpoint>>(t);
}
#endif

}  // namespace GLOBALQ_ABI::transport
