// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: messages between processes that share a piece of memory.
///
/// A shared_node is one process's view of that memory. It does not depend on MPI: transports create the memory
/// (detail/mpi_node.hpp), and tests use threads or forked processes.
///
/// Short messages are copied twice: by the sender into its ring for that receiver, and by the receiver out of it.
/// The sender does not wait for the receiver while the ring has room. For a long message the sender only
/// announces the address, and the receiver reads the sender's memory (process_vm_readv) if the system permits
/// that; otherwise the message streams through the ring too. No process writes to another process's private
/// memory, so buffers may be freed at any time once an error was reported.

#include "../../core/detail/compiled.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport::detail {

using shared_word = std::atomic<std::uint64_t>;
static_assert(shared_word::is_always_lock_free, "globalq: shared memory needs lock-free 64-bit atomics");

// ---- Layout of the shared memory ----------------------------------------------------------------------------

/// The messages from one process to another. Positions count bytes and only grow; the ring stores
/// position p at p modulo its size.
struct shared_channel {
  alignas(64) shared_word written{0};  ///< end of the bytes that the sender has put into the ring
  alignas(64) shared_word taken{0};    ///< end of the bytes that the receiver has taken out, a multiple of 64
  shared_word copied{0};    ///< number of messages that the receiver has read from the sender's memory
  shared_word readable{0};  ///< 1: the receiver can read the sender's memory
};

/// Header of each message, which starts at a multiple of 64; the first 48 bytes share a cache line with it.
struct shared_header {
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  ///< of the bytes in the sender's memory; 0: they follow in the ring
};

/// A process's input to an allgather. Each process has two, used alternately: no process can be two turns ahead.
struct alignas(64) shared_offer {
  static constexpr std::size_t most_bytes = 4096 - 2 * sizeof(std::uint64_t);
  shared_word turn{0};
  std::uint64_t bytes = 0;
  std::byte data[most_bytes];
};

/// One process.
struct shared_process {
  alignas(64) shared_word joined{0};
  shared_word left{0};  ///< its transport was destroyed normally
  std::uint64_t pid = 0;
  std::uint64_t pid_namespace = 0;  ///< 0: not known
  std::uint64_t probe = 0;          ///< address in the process's own memory of a copy of the next word
  std::uint64_t probe_value = 0;
  std::uint64_t cpus[16] = {};  ///< the CPUs it may run on, one bit each
  alignas(64) shared_offer offers[2];
};

/// The first failure of any process; the others report it.
struct shared_failure {
  alignas(64) shared_word state{0};  ///< 0: none; 1: being written; 2: complete
  int rank = 0;
  char text[1000] = {};
};

/// Offsets of everything in the shared memory.
class shared_plan {
 public:
  /// @param ring_bytes  size of each ring, a power of two of at least 256; 0: 256 KiB, less for many processes
  explicit shared_plan(int processes, std::size_t ring_bytes = 0)
      : processes_{static_cast<std::size_t>(processes)}, ring_bytes_{ring_bytes} {
    constexpr std::size_t budget = std::size_t{32} << 20;  // a container often has 64 MiB of shared memory
    if (ring_bytes_ == 0)
      ring_bytes_ = std::clamp<std::size_t>(std::bit_floor(budget / (processes_ * processes_)), 4096, 262144);
  }

  std::size_t processes() const { return processes_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::size_t channels() const { return processes_ * processes_; }
  std::size_t bytes() const { return ring_at(channels()); }

  std::size_t process_at(std::size_t i) const { return sizeof(shared_failure) + i * sizeof(shared_process); }
  std::size_t channel_at(std::size_t i) const { return process_at(processes_) + i * sizeof(shared_channel); }
  std::size_t ring_at(std::size_t i) const {
    constexpr std::size_t page = 4096;
    return (channel_at(channels()) + page - 1) / page * page + i * ring_bytes_;
  }

 private:
  std::size_t processes_;
  std::size_t ring_bytes_;
};

// ---- Waiting ------------------------------------------------------------------------------------------------

/// Hint to the core that this is a spin loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Backoff of a loop that waits for other processes. It polls for replies within microseconds, unless
/// there are more processes than cores; then it yields the core; after a millisecond it sleeps between
/// polls, for a time that is short compared with the wait so far.
class shared_pace {
 public:
  shared_pace(bool crowded, std::chrono::nanoseconds longest)
      : polls_{crowded ? 5U : 2000U}, longest_{longest} {}

  /// Pauses briefly. Returns true now and then: check whether the wait is in vain.
  /// @param attentive  the caller has other work: do not sleep
  bool turn(bool attentive = false) {
    if (++turns_ < polls_) {
      relax();
      return false;
    }
    auto const now = std::chrono::steady_clock::now();
    if (turns_ == polls_) start_ = now;
    waited_ = now - start_;
    if (attentive || waited_ < std::chrono::milliseconds{1})
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    return turns_ % 16 == 0;
  }

  bool late() const { return waited_ >= longest_; }

 private:
  unsigned const polls_;
  unsigned turns_ = 0;
  std::chrono::nanoseconds const longest_;
  std::chrono::nanoseconds waited_{0};
  std::chrono::steady_clock::time_point start_{};
};

/// How a wait ended.
enum class wait_result : int { done, mismatch, unreadable, failed, left, died, late };

// ---- Transfers ----------------------------------------------------------------------------------------------

/// One pending send or receive.
struct shared_transfer {
  enum class progress : int { running, done, mismatch, unreadable };
  std::byte* data = nullptr;  ///< a sender's bytes are only read
  std::size_t bytes = 0;
  std::size_t moved = 0;         ///< of the payload
  bool opened = false;           ///< its header was written or read
  std::uint64_t address = 0;     ///< in the sender's memory, for a receive that reads from there
  std::uint64_t number = 0;      ///< among the announced sends of its channel
  std::uint64_t peer_bytes = 0;  ///< set with `mismatch`
  int problem = 0;               ///< errno, set with `unreadable`
  progress state = progress::running;
  shared_transfer* next = nullptr;  ///< in a queue or in the pool
};

/// Transfers in starting order.
class shared_queue {
 public:
  bool empty() const { return first_ == nullptr; }
  shared_transfer& front() { return *first_; }
  void push(shared_transfer& t) {
    t.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &t;
    last_ = &t;
  }
  shared_transfer& pop() { return *std::exchange(first_, first_->next); }

 private:
  shared_transfer* first_ = nullptr;
  shared_transfer* last_ = nullptr;
};

/// One end of a channel.
struct shared_end {
  shared_channel* channel = nullptr;
  std::byte* ring = nullptr;
  std::uint64_t position = 0;   ///< of this end
  std::uint64_t seen = 0;       ///< last known position of the other end
  std::uint64_t announced = 0;  ///< number of messages by address that were announced or copied
  shared_queue queue;
  shared_queue shown;  ///< sends that were announced and not copied yet
};

// ---- One process's view -------------------------------------------------------------------------------------

/// One of the processes that share a piece of memory. One thread at a time uses it.
///
/// Transfers progress only inside send, await and advance. Any wait advances all transfers of its process, so no order
/// of waits deadlocks, even with full rings.
class shared_node {
 public:
  /// Messages longer than half a ring, and than this, are announced instead of streamed.
  static constexpr std::size_t least_announced = 4096;

  /// Initializes the memory before any process joins.
  /// @param memory  plan.bytes() zeroed bytes at the start of a page
  static void prepare(std::byte* memory, shared_plan const& plan);

  /// Joins; returns when all have joined or the deadline passed: see complete().
  /// @param memory       prepared; owned by the caller, who keeps it until the node is destroyed
  /// @param single_copy  reads other processes' memory if the system permits that
  shared_node(std::byte* memory, shared_plan const& plan, int rank, bool single_copy,
              std::chrono::nanoseconds longest);

  shared_node(shared_node const&) = delete;
  shared_node& operator=(shared_node const&) = delete;

  ~shared_node() { process(rank_).left.store(1, std::memory_order_release); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(plan_.processes()); }

  /// Whether all joined in time; otherwise the node is unusable.
  bool complete() const noexcept { return complete_; }

  /// Whether transfers are pending that others may wait for.
  bool busy() const noexcept { return running_ != 0; }

  shared_transfer& send(int peer, std::span<std::byte const> bytes);

  shared_transfer& receive(int peer, std::span<std::byte> bytes);

  /// Waits for a transfer. If the outcome is `done`, its record may be given back.
  /// @param aside  called while nothing progresses, for the progress of another library; returns true if it has pending
  ///               work
  template <class Aside>
  wait_result await(shared_transfer& t, int peer, std::chrono::nanoseconds longest, Aside const& aside);

  void give_back(shared_transfer& t) { t.next = std::exchange(spare_, &t); }

  /// Slot r of `all` becomes the bytes of process r.
  /// @param culprit  set to the process with another size (mismatch), or the missing one (left, died, late)
  /// @shape mine: at most shared_offer::most_bytes, or any size if only sizes are to be compared: then `all`
  ///        is empty
  template <class Aside>
  wait_result allgather(std::span<std::byte const> mine, std::span<std::byte> all,
                        std::chrono::nanoseconds longest, int& culprit, Aside const& aside);

  /// Number of bytes that a process contributed to the last allgather.
  std::uint64_t offered_bytes(int peer) { return process(peer).offers[turns_ % 2].bytes; }

  /// Advances all transfers; true if anything moved.
  bool advance();

  /// Records a failure for the others, unless there is one already, and invalidates later reads of this
  /// process's memory. Afterwards no process moves bytes of this node's transfers.
  void fail(int rank, std::string_view text) noexcept;

  /// Whether a process has failed; then its rank and message.
  bool failed() { return failure().state.load() == 2; }
  int failed_rank() { return failure().rank; }
  char const* failure_text() { return failure().text; }

  std::uint64_t pid(int peer) { return process(peer).pid; }

  /// Whether a process of this namespace has ended, even if its parent has not reaped it.
  static bool has_ended(std::uint64_t pid);
  /// The namespace of process ids; 0: unknown.
  static std::uint64_t process_namespace();

 private:
  template <class T>
  T* at(std::size_t offset) {
    return std::launder(reinterpret_cast<T*>(memory_ + offset));
  }
  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  shared_process& process(int peer) { return *at<shared_process>(plan_.process_at(index(peer))); }
  shared_failure& failure() { return *at<shared_failure>(0); }

  static std::uint64_t round_up(std::uint64_t position) { return (position + 63) & ~std::uint64_t{63}; }

  // ---- Handshake of the processes

  void introduce_myself();

  void meet_the_others(bool single_copy);

  /// Reads another process's memory; the number of bytes read, or -1 and errno.
  static std::int64_t read_memory(std::uint64_t pid, std::uint64_t from, void* to, std::size_t bytes);

  /// Whether a process is known to have ended. Ids of another namespace mean other processes.
  bool died(int peer);

  // ---- Waiting

  /// Blocks until `ready()`, or until that is impossible because `peer` is gone (ready may change peer). A ready state
  /// counts even if a process has failed meanwhile.
  template <class Ready, class Aside>
  wait_result await(Ready const& ready, int const& peer, std::chrono::nanoseconds longest,
                    Aside const& aside);

  // ---- Moving bytes

  shared_transfer& take(std::byte* data, std::size_t bytes);

  void finish(shared_transfer& t, shared_transfer::progress state);

  /// Copies between a ring and private memory.
  void put(shared_end& to, void const* from, std::size_t bytes);
  void get(shared_end& from, void* to, std::size_t bytes);

  /// Moves one piece of the first send; true if anything moved.
  bool push(shared_end& to);

  /// Moves one piece of the first receive; true if anything moved.
  bool pull(shared_end& from);

  /// Reads a piece from the sender's own memory.
  bool read(shared_end& from, shared_transfer& t);

  std::byte* const memory_;
  shared_plan const plan_;
  int const rank_;
  std::size_t const piece_;  // bytes copied at a time, so that sender and receiver overlap
  bool complete_ = false;
  bool crowded_ = false;  // more processes than cores
  std::uint64_t probe_ = 0;
  std::uint64_t turns_ = 0;  // allgathers so far
  std::uint64_t running_ = 0;
  std::vector<shared_end> out_, in_;
  std::deque<shared_transfer> transfers_;
  shared_transfer* spare_ = nullptr;
};

}  // namespace GLOBALQ_ABI::transport::detail

#if !defined(GLOBALQ_COMPILED)
#include "shared_node-inl.hpp"
#endif
