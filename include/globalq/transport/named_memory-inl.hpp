// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: how processes that share a name join, and how their messages fail.

#include "../core/detail/forks.hpp"
#include "collectives.hpp"
#include "detail/named_page.hpp"
#include "detail/shared_failure.hpp"
#include "detail/shared_node-inl.hpp"
#include "named_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>

#include <sys/random.h>
#include <unistd.h>

namespace GLOBALQ_ABI::transport {
namespace detail {

/// @brief Removes the name of the memory when a process leaves join(): all have joined, or the job cannot start.
///
/// A new job can use the name as soon as it is removed. Therefore one process removes it, and only once.
struct name_removal {
  shared_mapping const& memory;
  std::string const& name;
  named_page* page = nullptr;  ///< null: the name is kept

  ~name_removal() {
    if (page != nullptr && page->nameless.exchange(1) == 0) memory.remove(name);
  }
};

}  // namespace detail

GLOBALQ_DECL named_memory::named_memory(std::string_view name, int rank, int size, options settings)
    : rank_(rank),
      size_(size),
      deadline_(detail::deadline_of(settings, "named_memory")),
      forks_(globalq::detail::forks) {
  auto const plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  auto const refuse = [](std::string const& what, std::string const& remedy) {
    throw configuration_error("globalq: transport::named_memory: " + what + "; " + remedy);
  };
  if (name.empty() || name.size() > 200 || !std::all_of(name.begin(), name.end(), plain))
    refuse("invalid name \"" + std::string(name) + "\"",
           "give 1 to 200 letters, digits, '-', '_' and '.', which no other job uses");
  if (size < 1 || size > detail::named_page::most)
    refuse("invalid size " + std::to_string(size),
           "give 1 to " + std::to_string(detail::named_page::most) + " processes");
  if (rank < 0 || rank >= size)
    refuse("invalid rank " + std::to_string(rank) + " of " + std::to_string(size), "count ranks from 0");
  join(std::string(name), std::chrono::steady_clock::now() + deadline_);
}

GLOBALQ_DECL void named_memory::join(std::string const& name, std::chrono::steady_clock::time_point until) {
  using page = detail::named_page;
  std::string const path = "/globalq-" + name, quoted = "\"" + name + "\"";
  detail::shared_plan const plan(size_);
  std::size_t const bytes = page::bytes + plan.bytes();
  detail::shared_mapping front;  // only the first page, until sizes were compared
  auto const refusal = [&](std::string const& what, std::string const& remedy) {
    return configuration_error(message("named_memory", what, remedy));
  };
  auto const no_memory = [&](int problem) {
    return refusal(
        "the system refused " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(problem),
        problem == ENOSPC || problem == ENOMEM ? "enlarge /dev/shm (docker run --shm-size)"
                                               : "make /dev/shm writable, or use another transport");
  };
  auto const stopped = [&] {
    return transport_error(message("named_memory", "a process stopped while it joined " + quoted,
                                   "see what ended it, and start the job again"));
  };
  auto const foreign = [&] {
    auto const& found = front.found();
    char text[100] = "is a link, or memory of another user";
    if (found.st_mode != 0)
      std::snprintf(text, sizeof text, "is memory of user %u with mode %04o, not of user %u with mode 0600",
                    static_cast<unsigned>(found.st_uid), static_cast<unsigned>(found.st_mode & 07777),
                    static_cast<unsigned>(::geteuid()));
    return refusal(quoted + " " + text, "draw a new name at random: another user has taken this one");
  };
  auto const pause = [&](std::string const& missing) {
    if (std::chrono::steady_clock::now() >= until)
      throw transport_error(message("named_memory",
                                    "waited " + detail::seconds_text(deadline_) + " for " + missing,
                                    "start all processes with the same name, or raise options::deadline"));
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  };
  auto const own = static_cast<std::uint64_t>(::getpid());
  std::uint64_t const space = detail::shared_node::process_namespace();
  detail::name_removal removal{front, path};
  page* first = nullptr;
  auto const expect_alive = [&](int rank) {
    std::uint64_t const process = first->joined[rank].load();
    // ids of another namespace mean other processes
    if (process == 0 || space == 0 || first->spaces[rank] != space ||
        !detail::shared_node::has_ended(process))
      return;
    removal.page = first;
    throw transport_error(message("named_memory",
                                  "rank " + std::to_string(rank) + " died (process " +
                                      std::to_string(process) + ") while others joined " + quoted,
                                  "see what ended it, and start the job again"));
  };
  if (rank_ == 0) {
    int problem = front.create(path, page::bytes);
    if (problem == EEXIST)
      throw refusal(quoted + " is the name of another job, or of one that was killed while it started",
                    "use a new name for each job");
    if (problem != 0) throw no_memory(problem);
    removal.page = first = ::new (front.memory()) page;
    first->processes = static_cast<std::uint32_t>(size_);
    first->spaces[0] = space;
    first->joined[0].store(own);  // before the rest is allocated, so that others detect its death
    if ((problem = mapping_.open(path, bytes, true)) != 0) throw no_memory(problem);
    detail::shared_node::prepare(mapping_.memory() + page::bytes, plan);
    first->ready.store(1, std::memory_order_release);
  } else {
    for (int problem; (problem = front.open(path, page::bytes)) != 0; pause("rank 0 to make " + quoted)) {
      if (problem == EPERM) throw foreign();
      if (problem != ENOENT && problem != ENODATA) throw no_memory(problem);
    }
    first = std::launder(reinterpret_cast<page*>(front.memory()));
    for (unsigned turn = 1; first->ready.load(std::memory_order_acquire) == 0; ++turn) {
      if (turn % 64 == 0) expect_alive(0);
      pause("rank 0 to prepare " + quoted);
    }
    auto const tell = [&](configuration_error const& why) {
      first->refuse(why.what());
      throw configuration_error(why);
    };
    if (first->processes != static_cast<std::uint32_t>(size_))
      tell(refusal(
          "size is " + std::to_string(size_) + " here and " + std::to_string(first->processes) + " on rank 0",
          "give all processes the same size"));
    std::uint64_t nobody = 0;
    if (first->joined[rank_].load() == 0) first->spaces[rank_] = space;
    if (!first->joined[rank_].compare_exchange_strong(nobody, own))
      tell(refusal("another process has joined " + quoted + " as rank " + std::to_string(rank_),
                   "give each process a rank of its own"));
    removal.page = first;
    int const problem = mapping_.open(path, bytes);
    if (problem == ENOENT || (problem == 0 && mapping_.found().st_ino != front.found().st_ino))
      throw stopped();  // the name has been removed, and may be that of a new job
    if (problem != 0) tell(no_memory(problem));
  }
  for (unsigned turn = 0;; ++turn) {
    std::string missing;
    for (int r = 0; r < size_; ++r) {
      if (first->joined[r].load() == 0) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      if (turn % 64 == 63) expect_alive(r);
    }
    if (missing.empty()) break;
    if (first->refused.load() == 2)
      throw transport_error(message("named_memory", "another process was refused: " + std::string(first->why),
                                    "fix that, and start the job again"));
    pause((missing.find(',') == missing.npos ? "rank " : "ranks ") + missing + " to join " + quoted);
  }
  char const* const single_copy = std::getenv("GLOBALQ_SINGLE_COPY");
  bool const reads = single_copy == nullptr || std::string_view(single_copy) != "off";
  node_ = std::make_unique<detail::shared_node>(
      mapping_.memory() + page::bytes, plan, rank_, reads,
      std::max<std::chrono::nanoseconds>(std::chrono::milliseconds{1},
                                         until - std::chrono::steady_clock::now()));
  if (!node_->complete()) pause("all ranks to join " + quoted);
  if (!node_->complete()) throw stopped();
}

GLOBALQ_DECL std::unique_ptr<named_memory> named_memory::duplicate() {
  std::array<std::uint32_t, 4> key{};
  // not std::random_device: the one of libstdc++ 12 needs glibc 2.36
  if (rank_ == 0 && ::getentropy(key.data(), sizeof key) != 0)
    throw std::system_error(errno, std::generic_category(), "globalq: getentropy");
  std::string name = "duplicate";
  for (std::uint32_t const word : broadcast_value(*this, 0, key))
    name.append("-").append(std::to_string(word));
  return std::make_unique<named_memory>(name, rank_, size_, options{.deadline = deadline_});
}

GLOBALQ_DECL named_memory::~named_memory() {
  // In a forked child, do not mark this process as left: only the parent does.
  if (forks_ != globalq::detail::forks) static_cast<void>(node_.release());
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
  if (how == detail::wait_result::done) {
    node_->give_back(t);
    transfer.of_ = nullptr;
    return;
  }
  stop(detail::problem_of(*node_, how, t, transfer.sends_, transfer.peer_, transfer.peer_, deadline_));
}

GLOBALQ_DECL void named_memory::allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::expect_room_for_all(*this, mine.size(), all.size());
  expect_usable("allgather");
  bool const small = mine.size() <= detail::shared_offer::most_bytes;
  int peer = 0;
  auto const how =
      node_->allgather(mine, small ? all : std::span<std::byte>{}, deadline_, peer, [] { return false; });
  if (how != detail::wait_result::done)
    stop(detail::problem_of(*node_, how, mine.size(), peer, peer, deadline_));
  if (!small) return detail::allgather_by_messages(*this, mine, all);
  bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
}

GLOBALQ_DECL std::string named_memory::message(std::string_view operation, std::string const& what,
                                               std::string_view remedy) const {
  return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
}

GLOBALQ_DECL void named_memory::stop(detail::shared_problem const& why) {
  std::string const text = message(why.operation, why.what, why.remedy);
  broken_ = true;
  node_->fail(rank_, text);
  throw transport_error(text);
}

GLOBALQ_DECL void named_memory::expect_usable(char const* operation) const {
  if (forks_ != globalq::detail::forks)
    throw transport_error(message(operation,
                                  "the transport belongs to the process that this one was forked from",
                                  "make a new one after fork"));
  if (broken_)
    throw transport_error(message(operation, "the transport is broken: a call before this one failed",
                                  "make a new one under a new name, on all workers together"));
}

GLOBALQ_DECL void named_memory::give_up() noexcept {
  if (broken_ || forks_ != globalq::detail::forks) return;
  broken_ = true;
  node_->fail(rank_, "a transfer was given up");
}

}  // namespace GLOBALQ_ABI::transport
