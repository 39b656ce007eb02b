// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: progress of messages through shared memory. Inline in the library too, because two of its sources use it.

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/uio.h>
#endif

#include "shared_node.hpp"

namespace GLOBALQ_ABI::transport::detail {

inline void shared_node::prepare(std::byte* memory, shared_plan const& plan) {
  ::new (memory) shared_failure;
  for (std::size_t i = 0; i < plan.processes(); ++i) ::new (memory + plan.process_at(i)) shared_process;
  for (std::size_t i = 0; i < plan.channels(); ++i) ::new (memory + plan.channel_at(i)) shared_channel;
}

inline shared_node::shared_node(std::byte* memory, shared_plan const& plan, int rank, bool single_copy,
                                std::chrono::nanoseconds longest)
    : memory_{memory}, plan_{plan}, rank_{rank}, piece_{std::min<std::size_t>(32768, plan.ring_bytes() / 4)} {
  auto const n = plan_.processes();
  auto const me = static_cast<std::size_t>(rank_);
  out_.resize(n);
  in_.resize(n);
  for (std::size_t peer = 0; peer < n; ++peer) {
    out_[peer].channel = at<shared_channel>(plan_.channel_at(me * n + peer));
    out_[peer].ring = memory_ + plan_.ring_at(me * n + peer);
    in_[peer].channel = at<shared_channel>(plan_.channel_at(peer * n + me));
    in_[peer].ring = memory_ + plan_.ring_at(peer * n + me);
  }
  introduce_myself();
  auto const all_joined = [this] {
    for (int peer = 0; peer < size(); ++peer)
      if (process(peer).joined.load(std::memory_order_acquire) == 0) return false;
    return true;
  };
  shared_pace pace{true, longest};
  while (!(complete_ = all_joined()) && !(pace.turn() && pace.late())) continue;
  if (complete_) meet_the_others(single_copy);
}

inline shared_transfer& shared_node::send(int peer, std::span<std::byte const> bytes) {
  shared_end& to = out_[index(peer)];
  shared_transfer& t = take(const_cast<std::byte*>(bytes.data()), bytes.size());
  to.queue.push(t);
  while (push(to)) continue;
  return t;
}

inline shared_transfer& shared_node::receive(int peer, std::span<std::byte> bytes) {
  shared_transfer& t = take(bytes.data(), bytes.size());
  in_[index(peer)].queue.push(t);  // copied later: a caller that posts receives first usually sends next
  return t;
}

template <class Aside>
wait_result shared_node::await(shared_transfer& t, int peer, std::chrono::nanoseconds longest,
                               Aside const& aside) {
  auto const ended = [&] { return t.state != shared_transfer::progress::running; };
  auto const how = await(ended, peer, longest, aside);
  if (how != wait_result::done || t.state == shared_transfer::progress::done) return how;
  bool const differs = t.state == shared_transfer::progress::mismatch;
  return differs ? wait_result::mismatch : wait_result::unreadable;
}

template <class Aside>
wait_result shared_node::allgather(std::span<std::byte const> mine, std::span<std::byte> all,
                                   std::chrono::nanoseconds longest, int& culprit, Aside const& aside) {
  std::uint64_t const turn = ++turns_;
  bool const carries = !all.empty();
  shared_offer& own = process(rank_).offers[turn % 2];
  own.bytes = mine.size();
  if (carries) std::memcpy(own.data, mine.data(), mine.size());
  own.turn.store(turn, std::memory_order_release);
  int step = 1;  // to the first process that has not arrived
  auto const ready = [&] {
    for (; step < size(); ++step) {
      culprit = (rank_ + step) % size();
      if (process(culprit).offers[turn % 2].turn.load(std::memory_order_acquire) != turn) return false;
    }
    return true;
  };
  auto const how = await(ready, culprit, longest, aside);
  if (how != wait_result::done) return how;
  for (culprit = 0; culprit < size(); ++culprit)
    if (offered_bytes(culprit) != mine.size()) return wait_result::mismatch;
  if (carries)
    for (int peer = 0; peer < size(); ++peer)
      std::memcpy(all.data() + index(peer) * mine.size(), process(peer).offers[turn % 2].data, mine.size());
  return wait_result::done;
}

inline bool shared_node::advance() {
  if (running_ == 0) return false;
  bool moved = false;
  for (auto& end : out_)
    if (!end.queue.empty() || !end.shown.empty()) moved = push(end) || moved;
  for (auto& end : in_)
    if (!end.queue.empty()) moved = pull(end) || moved;
  return moved;
}

inline void shared_node::fail(int rank, std::string_view text) noexcept {
  for (auto* side : {&out_, &in_})
    for (auto& end : *side) end.queue = end.shown = {};
  running_ = 0;
  std::uint64_t none = 0;
  if (failure().state.compare_exchange_strong(none, 1)) {
    failure().rank = rank;
    std::size_t const length = std::min(text.size(), sizeof failure().text - 1);
    std::memcpy(failure().text, text.data(), length);
    failure().text[length] = '\0';
    failure().state.store(2);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before the caller frees or changes its buffers
}

inline void shared_node::introduce_myself() {
  shared_process& me = process(rank_);
  me.pid = static_cast<std::uint64_t>(::getpid());
  me.pid_namespace = process_namespace();
  probe_ = 0x676c6f62616c71ULL ^ (me.pid << 32) ^ reinterpret_cast<std::uintptr_t>(this);
  me.probe = reinterpret_cast<std::uintptr_t>(&probe_);
  me.probe_value = probe_;
#if defined(__linux__)
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    static_assert(sizeof cpus == sizeof me.cpus);
    std::memcpy(me.cpus, &cpus, sizeof cpus);
  }
#endif
  me.joined.store(1, std::memory_order_release);
}

inline void shared_node::meet_the_others(bool single_copy) {
  std::uint64_t cpus[16] = {};
  for (int peer = 0; peer < size(); ++peer)
    for (std::size_t i = 0; i < 16; ++i) cpus[i] |= process(peer).cpus[i];
  int cores = 0;
  for (std::uint64_t const word : cpus) cores += std::popcount(word);
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  crowded_ = size() > cores;
  for (int peer = 0; peer < size(); ++peer) {
    shared_process& other = process(peer);
    std::uint64_t value = 0;
    bool const reads = single_copy &&
                       read_memory(other.pid, other.probe, &value, sizeof value) == sizeof value &&
                       value == other.probe_value;  // otherwise the id belongs to another process
    in_[index(peer)].channel->readable.store(reads ? 1 : 0, std::memory_order_release);
  }
}

inline std::int64_t shared_node::read_memory(std::uint64_t pid, std::uint64_t from, void* to,
                                             std::size_t bytes) {
#if defined(__linux__)
  iovec const here{to, bytes};
  iovec const there{reinterpret_cast<void*>(static_cast<std::uintptr_t>(from)), bytes};
  return ::process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
#else
  static_cast<void>(pid), static_cast<void>(from), static_cast<void>(to), static_cast<void>(bytes);
  errno = ENOSYS;
  return -1;
#endif
}

inline bool shared_node::died(int peer) {
  shared_process const& other = process(peer);
  std::uint64_t const space = process(rank_).pid_namespace;
  return space != 0 && other.pid_namespace == space && has_ended(other.pid);
}

inline std::uint64_t shared_node::process_namespace() {
  struct stat space {};
  return ::stat("/proc/self/ns/pid", &space) == 0 ? static_cast<std::uint64_t>(space.st_ino) : 0;
}

inline bool shared_node::has_ended(std::uint64_t pid) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
#if defined(__linux__)
  char text[512];  // a wait allocates nothing
  std::snprintf(text, sizeof text, "/proc/%llu/stat", static_cast<unsigned long long>(pid));
  int const file = ::open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t const length = ::read(file, text, sizeof text);
  ::close(file);
  text[length > 0 && length < static_cast<ssize_t>(sizeof text) ? length : 0] = '\0';
  char const* const end = std::strrchr(text, ')');  // end of the program's name, which may contain anything
  char state = 0;
  long threads = 0;  // a main thread that has ended is a zombie while other threads run
  return end != nullptr &&
         std::sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                     &state, &threads) == 2 &&
         (state == 'Z' || state == 'X') && threads <= 1;
#else
  return false;
#endif
}

template <class Ready, class Aside>
wait_result shared_node::await(Ready const& ready, int const& peer, std::chrono::nanoseconds longest,
                               Aside const& aside) {
  shared_pace pace{crowded_, longest};
  for (;;) {
    if (ready()) return wait_result::done;
    if (advance()) continue;
    if (!pace.turn(aside())) continue;
    auto const vain = [&] {
      if (failed()) return wait_result::failed;
      if (process(peer).left.load() != 0) return wait_result::left;
      if (died(peer)) return wait_result::died;
      return pace.late() ? wait_result::late : wait_result::done;
    }();
    if (vain == wait_result::done) continue;
    while (advance()) continue;  // data that arrived before the failure counts
    return ready() ? wait_result::done : vain;
  }
}

inline shared_transfer& shared_node::take(std::byte* data, std::size_t bytes) {
  if (spare_ == nullptr) spare_ = &transfers_.emplace_back();
  shared_transfer& t = *std::exchange(spare_, spare_->next);
  t = {};
  t.data = data;
  t.bytes = bytes;
  ++running_;
  return t;
}

inline void shared_node::finish(shared_transfer& t, shared_transfer::progress state) {
  t.state = state;
  --running_;
}

inline void shared_node::put(shared_end& to, void const* from, std::size_t bytes) {
  std::size_t const at = to.position % plan_.ring_bytes();
  std::size_t const first = std::min(bytes, plan_.ring_bytes() - at);
  std::memcpy(to.ring + at, from, first);
  if (first != bytes) std::memcpy(to.ring, static_cast<std::byte const*>(from) + first, bytes - first);
  to.position += bytes;
}

inline void shared_node::get(shared_end& from, void* to, std::size_t bytes) {
  std::size_t const at = from.position % plan_.ring_bytes();
  std::size_t const first = std::min(bytes, plan_.ring_bytes() - at);
  std::memcpy(to, from.ring + at, first);
  if (first != bytes) std::memcpy(static_cast<std::byte*>(to) + first, from.ring, bytes - first);
  from.position += bytes;
}

inline bool shared_node::push(shared_end& to) {
  shared_channel& line = *to.channel;
  bool moved = false;
  while (!to.shown.empty() && line.copied.load(std::memory_order_acquire) >= to.shown.front().number) {
    finish(to.shown.pop(), shared_transfer::progress::done);
    moved = true;
  }
  if (to.queue.empty()) return moved;
  shared_transfer& t = to.queue.front();
  std::size_t const head = t.opened ? 0 : sizeof(shared_header);
  std::size_t const wanted = std::min(head + t.bytes - t.moved, piece_);
  auto const room = [&] { return plan_.ring_bytes() - (to.position - to.seen); };
  if (room() < wanted) {
    to.seen = line.taken.load(std::memory_order_acquire);
    if (room() < std::max<std::size_t>(1, head)) return moved;
  }
  bool const announce = !t.opened && t.bytes > least_announced && 2 * t.bytes > plan_.ring_bytes() &&
                        line.readable.load(std::memory_order_acquire) == 1;
  if (!t.opened) {
    shared_header const header{t.bytes, announce ? reinterpret_cast<std::uintptr_t>(t.data) : 0};
    put(to, &header, sizeof header);
    t.opened = true;
  }
  if (announce) {
    t.number = ++to.announced;
  } else if (t.moved != t.bytes) {
    std::size_t const bytes = std::min({t.bytes - t.moved, piece_, static_cast<std::size_t>(room())});
    put(to, t.data + t.moved, bytes);
    t.moved += bytes;
  }
  bool const whole = announce || t.moved == t.bytes;
  if (whole) to.position = round_up(to.position);
  line.written.store(to.position, std::memory_order_release);
  if (!whole) return true;
  to.queue.pop();
  if (announce)
    to.shown.push(t);
  else
    finish(t, shared_transfer::progress::done);
  return true;
}

inline bool shared_node::pull(shared_end& from) {
  shared_channel& line = *from.channel;
  shared_transfer& t = from.queue.front();
  if (t.address != 0) return read(from, t);
  auto const here = [&] { return from.seen - from.position; };
  if (here() < std::min(t.bytes - t.moved, piece_) + (t.opened ? 0 : sizeof(shared_header)))
    from.seen = line.written.load(std::memory_order_acquire);
  bool const opens = !t.opened;
  if (opens) {
    if (here() == 0) return false;
    shared_header header;
    get(from, &header, sizeof header);
    t.opened = true;
    if (header.bytes != t.bytes) {
      t.peer_bytes = header.bytes;
      from.queue.pop();
      finish(t, shared_transfer::progress::mismatch);
      return true;
    }
    if (header.address != 0) {
      t.address = header.address;
      from.position = round_up(from.position);
      line.taken.store(from.position, std::memory_order_release);
      return read(from, t);
    }
  }
  std::size_t const bytes = std::min({t.bytes - t.moved, piece_, static_cast<std::size_t>(here())});
  if (bytes == 0 && !opens) return false;
  if (bytes != 0) get(from, t.data + t.moved, bytes);
  t.moved += bytes;
  bool const whole = t.moved == t.bytes;
  if (whole) from.position = round_up(from.position);
  line.taken.store(from.position & ~std::uint64_t{63}, std::memory_order_release);
  if (whole) {
    from.queue.pop();
    finish(t, shared_transfer::progress::done);
  }
  return true;
}

inline bool shared_node::read(shared_end& from, shared_transfer& t) {
  constexpr std::size_t most = std::size_t{1} << 20;
  auto const peer = static_cast<int>(&from - in_.data());
  std::int64_t const got = read_memory(process(peer).pid, t.address + t.moved, t.data + t.moved,
                                       std::min(most, t.bytes - t.moved));
  int const problem = errno;
  // After a failure the sender may have freed or changed these bytes during the read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (failure().state.load() != 0) return false;
  if (got <= 0) {
    t.problem = problem;
    from.queue.pop();
    finish(t, shared_transfer::progress::unreadable);
    return true;
  }
  t.moved += static_cast<std::size_t>(got);
  if (t.moved != t.bytes) return true;
  from.channel->copied.store(++from.announced, std::memory_order_release);
  from.queue.pop();
  finish(t, shared_transfer::progress::done);
  return true;
}

}  // namespace GLOBALQ_ABI::transport::detail
