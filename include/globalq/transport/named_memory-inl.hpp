// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: how processes that know a name find each other, and what their messages run into.

#include "collectives.hpp"
#include "detail/shared_node-inl.hpp"
#include "named_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace GLOBALQ_ABI::transport {
namespace detail {

/// The first page of the memory: who has come, before anything else is looked at.
struct named_page {
  static constexpr std::size_t bytes = 4096;
  static constexpr int most = 1024;

  std::atomic<std::uint32_t> ready{0};  ///< the rest is in order
  std::uint32_t processes = 0;
  std::atomic<std::uint8_t> joined[most] = {};
};
static_assert(sizeof(named_page) <= named_page::bytes);

}  // namespace detail

GLOBALQ_DECL named_memory::named_memory(std::string_view name, int rank, int size, options settings)
    : rank_(rank), size_(size), deadline_(detail::deadline_of(settings, "named_memory")) {
  using page = detail::named_page;
  auto const refuse = [](std::string const& what, std::string const& remedy) {
    throw configuration_error("globalq: transport::named_memory: " + what + "; " + remedy);
  };
  auto const plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  if (name.empty() || name.size() > 200 || !std::all_of(name.begin(), name.end(), plain))
    refuse("\"" + std::string(name) + "\" is no name",
           "give 1 to 200 letters, digits, '-', '_' and '.', which no other job uses");
  if (size < 1 || size > page::most)
    refuse(std::to_string(size) + " processes cannot share memory",
           "give 1 to " + std::to_string(page::most));
  if (rank < 0 || rank >= size)
    refuse("there is no rank " + std::to_string(rank) + " among " + std::to_string(size),
           "count ranks from 0");
  std::string const path = "/globalq-" + std::string(name);
  detail::shared_plan const plan(size);
  auto const until = std::chrono::steady_clock::now() + deadline_;
  auto const refused = [&](int problem) {
    refuse("the system refused " + std::to_string(page::bytes + plan.bytes()) +
               " bytes of shared memory: " + std::strerror(problem),
           "enlarge /dev/shm (docker run --shm-size)");
  };
  page* first = nullptr;
  if (rank == 0) {
    int const problem = mapping_.create(path, page::bytes + plan.bytes());
    if (problem == EEXIST)
      refuse("\"" + std::string(name) +
                 "\" is the name of another job, or of one that was killed while it started",
             "draw a name that nobody has used");
    if (problem != 0) refused(problem);
    first = ::new (mapping_.memory()) page;
    first->processes = static_cast<std::uint32_t>(size);
    detail::shared_node::prepare(mapping_.memory() + page::bytes, plan);
    first->ready.store(1, std::memory_order_release);
  } else {
    auto const late = [&](std::string const& what) {
      if (std::chrono::steady_clock::now() >= until)
        throw transport_error(message("joining",
                                      "waited " + detail::seconds_text(deadline_) + " for rank 0 to " + what +
                                          " \"" + std::string(name) + "\"",
                                      "start all processes with the same name, or raise options::deadline"));
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    };
    detail::shared_mapping front;  // all that is known before the number of processes was compared
    for (int problem; (problem = front.open(path, page::bytes)) != 0; late("make"))
      if (problem != ENOENT && problem != ENODATA) refused(problem);
    first = std::launder(reinterpret_cast<page*>(front.memory()));
    while (first->ready.load(std::memory_order_acquire) == 0) late("prepare");
    if (first->processes != static_cast<std::uint32_t>(size))
      refuse("rank " + std::to_string(rank) + " was told of " + std::to_string(size) +
                 " processes, and rank 0 of " + std::to_string(first->processes),
             "give all processes the same size");
    if (int const problem = mapping_.open(path, page::bytes + plan.bytes()); problem != 0) refused(problem);
    first = std::launder(reinterpret_cast<page*>(mapping_.memory()));
  }
  if (first->joined[rank].exchange(1) != 0)
    refuse("another process is rank " + std::to_string(rank) + " of \"" + std::string(name) + "\"",
           "give each process a rank of its own");
  char const* const single_copy = std::getenv("GLOBALQ_SINGLE_COPY");
  bool const reads = single_copy == nullptr || std::string_view(single_copy) != "off";
  node_ = std::make_unique<detail::shared_node>(
      mapping_.memory() + page::bytes, plan, rank, reads,
      std::max<std::chrono::nanoseconds>(std::chrono::milliseconds{1},
                                         until - std::chrono::steady_clock::now()));
  if (node_->complete()) {
    mapping_.unlink();
    return;
  }
  std::string missing;
  for (int r = 0; r < size; ++r)
    if (first->joined[r].load() == 0) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  throw transport_error(message("joining",
                                "waited " + detail::seconds_text(deadline_) + " for ranks " + missing +
                                    " to join \"" + std::string(name) + "\"",
                                "start all processes, or raise options::deadline"));
}

GLOBALQ_DECL named_memory::request named_memory::send_async(int peer, std::span<std::byte const> bytes) {
  detail::expect_peer(*this, "send", peer);
  expect_usable("send");
  bytes_sent_ += bytes.size();
  return {*this, node_->send(peer, bytes), peer, true};
}

GLOBALQ_DECL named_memory::request named_memory::recv_async(int peer, std::span<std::byte> bytes) {
  detail::expect_peer(*this, "recv", peer);
  expect_usable("recv");
  return {*this, node_->receive(peer, bytes), peer, false};
}

GLOBALQ_DECL void named_memory::wait(request& transfer) {
  if (transfer.of_ == nullptr) return;
  char const* const operation = transfer.sends_ ? "send" : "recv";
  expect_usable(operation);
  detail::shared_transfer& t = *transfer.transfer_;
  auto const how = node_->await(t, transfer.peer_, deadline_, [] { return false; });
  if (how == detail::shared_outcome::done) {
    node_->give_back(t);
    transfer.of_ = nullptr;
    return;
  }
  std::string const peer = "rank " + std::to_string(transfer.peer_), bytes = std::to_string(t.bytes);
  if (how == detail::shared_outcome::mismatch)
    stop(message("recv",
                 "expected " + bytes + " bytes from " + peer + ", which sent " + std::to_string(t.peer_bytes),
                 "let both name the same size"));
  if (how == detail::shared_outcome::unreadable && t.problem != ESRCH)
    stop(message(
        "recv",
        "could not read " + bytes + " bytes in the memory of " + peer + ": " + std::strerror(t.problem),
        "set GLOBALQ_SINGLE_COPY=off"));
  stop_because_of(how == detail::shared_outcome::unreadable ? detail::shared_outcome::died : how, operation,
                  transfer.peer_, (transfer.sends_ ? "receive " : "send ") + bytes + " bytes");
}

GLOBALQ_DECL void named_memory::allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::expect_room_for_all(*this, mine.size(), all.size());
  expect_usable("allgather");
  bool const small = mine.size() <= detail::shared_offer::most_bytes;
  int peer = 0;
  auto const how =
      node_->allgather(mine, small ? all : std::span<std::byte>{}, deadline_, peer, [] { return false; });
  if (how == detail::shared_outcome::mismatch)
    stop(message("allgather",
                 "called with " + std::to_string(mine.size()) + " bytes, but rank " + std::to_string(peer) +
                     " called with " + std::to_string(node_->offered_bytes(peer)),
                 "let every worker make the same calls with the same sizes"));
  if (how != detail::shared_outcome::done) stop_because_of(how, "allgather", peer, "take part");
  if (!small) return detail::allgather_by_messages(*this, mine, all);
  bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
}

GLOBALQ_DECL std::string named_memory::message(std::string_view operation, std::string const& what,
                                               std::string_view remedy) const {
  return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
}

GLOBALQ_DECL void named_memory::stop(std::string const& text) {
  broken_ = true;
  node_->fail(rank_, text);
  throw transport_error(text);
}

GLOBALQ_DECL void named_memory::stop_because_of(detail::shared_outcome how, char const* operation, int peer,
                                                std::string const& missing) {
  std::string const who = "rank " + std::to_string(peer);
  switch (how) {
    case detail::shared_outcome::failed:
      stop(message(operation,
                   "rank " + std::to_string(node_->failed_rank()) + " failed: " + node_->failure_text(),
                   "mend what it reports"));
    case detail::shared_outcome::left:
      stop(message(operation, who + " destroyed its transport and did not " + missing,
                   "let every worker make the same calls in the same order"));
    case detail::shared_outcome::died:
      stop(message(operation,
                   who + " died (process " + std::to_string(node_->pid(peer)) + ") and did not " + missing,
                   "see what ended it, and start the job again"));
    default:
      stop(message(operation, "waited " + detail::seconds_text(deadline_) + " for " + who + " to " + missing,
                   "let every worker make the same calls in the same order, or raise options::deadline"));
  }
}

GLOBALQ_DECL void named_memory::expect_usable(char const* operation) const {
  if (broken_)
    throw transport_error(message(operation, "the transport is broken: a call before this one failed",
                                  "make a new one under a new name, on all workers together"));
}

GLOBALQ_DECL void named_memory::give_up() noexcept {
  if (broken_) return;
  broken_ = true;
  node_->fail(rank_, "a transfer was given up");
}

}  // namespace GLOBALQ_ABI::transport
