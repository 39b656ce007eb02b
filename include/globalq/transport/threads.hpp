// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: n workers in one process, each a thread.
///
/// Messages meet without a copy in between: whoever comes second, sender or receiver, copies straight from
/// the sender's bytes to the receiver's.

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "globalq/core/error.hpp"
#include "globalq/transport/collectives.hpp"
#include "globalq/transport/concept.hpp"
#include "globalq/transport/endpoint.hpp"

namespace GLOBALQ_ABI::transport {
namespace detail {

/// Where a posted send or receive stands. Only `queued` ones lie in a channel's queue.
enum class progress : int { queued, copying, done, mismatch, withdrawn };

struct channel;
struct worker;

/// One posted send or receive. Its owner takes it from its own pool and gives it back; the other side
/// touches it only between `queued` and the end of the copy.
struct operation {
  std::byte* data = nullptr;  // a sender's bytes are only read
  std::size_t bytes = 0;
  std::size_t peer_bytes = 0;  // set with `mismatch`
  std::atomic<progress> state{progress::done};
  operation* next = nullptr;  // in the channel's queue, or in the pool
  channel* on = nullptr;
  worker* owner = nullptr;
  int peer = 0;
  bool sends = false;
};

/// Messages from one worker to another. As matches are made at once, what waits here is all sends or all
/// receives.
struct alignas(64) channel {
  std::mutex mutex;
  operation* first = nullptr;
  operation* last = nullptr;
  bool torn = false;  // an operation was withdrawn: no pairs can be trusted any more, so none are made

  void append(operation& op) {
    op.next = nullptr;
    (first == nullptr ? first : last->next) = &op;
    last = &op;
  }

  void remove(operation& op) {
    operation* before = nullptr;
    for (operation* at = first; at != &op; at = at->next) before = at;
    (before == nullptr ? first : before->next) = op.next;
    if (last == &op) last = before;
  }
};

/// What a worker brings to a collective.
struct offer {
  static constexpr std::size_t small_bytes = 256;  // up to here a collective goes through `copy`

  char const* call = "";
  std::size_t bytes = 0;
  std::byte* data = nullptr;
  alignas(64) std::array<std::byte, small_bytes> copy;
};

/// What the others see of a worker. It outlives the worker's endpoint.
struct alignas(64) worker {
  int rank = 0;

  std::mutex mutex;  // for sleeping only
  std::condition_variable awake;
  std::atomic<bool> asleep{false};

  std::atomic<std::uint64_t> arrived{0};  // number of meetings it has come to
  std::atomic<bool> touching{false};      // reads or writes the others' offers
  std::atomic<bool> gone{false};          // has left the run
  std::array<offer, 2> offers;            // used in turn: one is read while the next is written

  // Only the worker itself uses the rest.
  std::deque<operation> operations;
  operation* spare = nullptr;
  bool blames_another = false;  // it threw because of another worker's failure

  operation& take() {
    if (spare == nullptr) {
      spare = &operations.emplace_back();
      spare->owner = this;
    }
    return *std::exchange(spare, spare->next);
  }

  void give_back(operation& op) { op.next = std::exchange(spare, &op); }

  void wake() {
    if (!asleep.load()) return;
    { std::lock_guard const lock{mutex}; }  // whoever announced its sleep now sleeps, or has looked again
    awake.notify_all();
  }
};

/// Takes an operation back; afterwards nobody else touches its bytes.
inline void withdraw(operation& op) {
  if (op.state.load() == progress::queued) {
    std::lock_guard const lock{op.on->mutex};
    if (op.state.load() == progress::queued) {
      op.on->remove(op);
      op.on->torn = true;
      op.state.store(progress::withdrawn);
    }
  }
  while (op.state.load() == progress::copying) std::this_thread::yield();
}

/// All that the workers of a cluster share.
struct world {
  world(int workers, std::chrono::nanoseconds longest_wait)
      : size{workers},
        deadline{longest_wait},
        crew(static_cast<std::size_t>(workers)),
        channels(crew.size() * crew.size()) {
    for (int rank = 0; rank < workers; ++rank) at(rank).rank = rank;
  }

  worker& at(int rank) { return crew[static_cast<std::size_t>(rank)]; }

  channel& between(int from, int to) {
    return channels[static_cast<std::size_t>(from) * crew.size() + static_cast<std::size_t>(to)];
  }

  void wake_all() {
    for (auto& each : crew) each.wake();
  }

  /// The first failure of a run is the one that the other workers hear of; where memory is short, without its message.
  void fail(int rank, std::string_view message) noexcept {
    {
      std::lock_guard const lock{failure};
      if (failed.load()) return;
      failed_rank = rank;
      try {
        failed_message = message;
      } catch (std::bad_alloc const&) {
        failed_message = "out of memory";  // short enough for no memory
      }
      failed.store(true);
    }
    wake_all();
  }

  void reset() {
    for (auto& line : channels) {
      for (operation* op = line.first; op != nullptr; op = op->next) op->state.store(progress::withdrawn);
      line.first = line.last = nullptr;
      line.torn = false;
    }
    for (auto& each : crew) {
      each.arrived.store(0);
      each.gone.store(false);
      each.blames_another = false;
    }
    arrivals.store(0);
    failed.store(false);
  }

  int const size;
  std::chrono::nanoseconds const deadline;
  std::vector<worker> crew;
  std::vector<channel> channels;
  alignas(64) std::atomic<std::uint64_t> arrivals{0};  // at all meetings of the run together
  alignas(64) std::atomic<bool> failed{false};
  std::mutex failure;  // guards the next two until `failed` is set; they stand still afterwards
  int failed_rank = 0;
  std::string failed_message;
  std::atomic<bool> running{false};
};

template <class Lane>
constexpr char const* sum_call() {
  if constexpr (std::same_as<Lane, std::int8_t>) return "allreduce_sum of int8";
  if constexpr (std::same_as<Lane, std::int16_t>) return "allreduce_sum of int16";
  if constexpr (std::same_as<Lane, std::int32_t>) return "allreduce_sum of int32";
  return "allreduce_sum of float";
}

/// sum[i] += lanes[i]; integers wrap.
template <class Lane>
void add_lanes(Lane* sum, Lane const* lanes, std::size_t count) {
  if constexpr (std::integral<Lane>) {
    using bits = std::make_unsigned_t<Lane>;
    for (std::size_t i = 0; i < count; ++i)
      sum[i] = static_cast<Lane>(static_cast<bits>(static_cast<bits>(sum[i]) + static_cast<bits>(lanes[i])));
  } else {
    for (std::size_t i = 0; i < count; ++i) sum[i] += lanes[i];
  }
}

}  // namespace detail

/// @brief A cluster of n workers in this process: the transport that needs no launcher.
///
/// @code
/// transport::threads cluster{4};
/// cluster.run([&](auto& workers) { ... });  // called once on each of four threads
/// @endcode
///
/// A cluster can run many times, also after a run that failed. It is used by one thread at a time.
class threads {
 public:
  class endpoint;

  /// @brief Prepares a cluster; threads start with run().
  /// @param workers   how many, at least 1; more than there are cores is fine
  /// @param settings  the deadline of each wait; above 0, and counted as at most a year
  /// @throws          configuration_error
  explicit threads(int workers, options settings = {});

  /// @brief Number of workers.
  [[nodiscard]] int size() const noexcept { return world_->size; }

  /// @brief Calls `body(endpoint)` on size() new threads at once, one for each worker, and joins them.
  ///
  /// A worker that leaves `body` by an exception makes every unfinished wait of the others throw
  /// transport_error with its rank and message. Requests and endpoints end with the run.
  /// @param body  callable with `threads::endpoint&`; all threads call the same object
  /// @throws      the exception of the lowest rank that failed by itself, rather than because of another
  ///              worker; configuration_error when the cluster is already running
  template <class Body>
  void run(
      Body&& body) {  // not constrained: what is wrong in a generic body would only be "no matching function"
    static_assert(
        std::is_invocable_v<Body&, endpoint&>,
        "globalq: run calls its argument on each worker with the worker's endpoint; pass a function "
        "of one argument: cluster.run([](auto& workers) { ... })");
    run_all([](void* f, endpoint& self) { (*static_cast<std::remove_reference_t<Body>*>(f))(self); },
            const_cast<void*>(static_cast<void const*>(std::addressof(body))));
  }

 private:
  /// run() of work(what, endpoint).
  void run_all(void (*work)(void* what, endpoint& self), void* what);

  std::unique_ptr<detail::world> world_;
};

/// @brief One worker of a threads cluster. Its own thread alone uses it.
///
/// Message errors: where the sizes of a send and its receive differ, both sides throw. A wait that throws
/// ends the run for every worker: nobody touches this worker's bytes any more, and later waits of all
/// workers throw, until the next run().
class threads::endpoint {
 public:
  /// @brief Space of kernels when the caller gives none: one worker is one core.
  using execution_space = Kokkos::Serial;

  /// @brief A send or receive under way. Destroying it before wait() withdraws it.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept : operation_{std::exchange(other.operation_, nullptr)} {}
    request& operator=(request&& other) noexcept {
      request old{std::move(*this)};
      operation_ = std::exchange(other.operation_, nullptr);
      return *this;
    }
    ~request() {
      if (operation_ == nullptr) return;
      detail::withdraw(*operation_);
      finish();
    }

   private:
    friend class endpoint;
    explicit request(detail::operation& started) : operation_{&started} {}

    void finish() {
      operation_->owner->give_back(*operation_);
      operation_ = nullptr;
    }

    detail::operation* operation_ = nullptr;
  };

  endpoint(endpoint const&) = delete;
  endpoint& operator=(endpoint const&) = delete;

  [[nodiscard]] int rank() const noexcept { return self_.rank; }
  [[nodiscard]] int size() const noexcept { return world_.size; }
  [[nodiscard]] std::string_view name() const noexcept { return "threads"; }

  /// @brief Bytes handed over for sending in this run: those of each send, n - 1 times the own bytes of an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  /// @brief This worker's own execution-space instance: workers sharing one would wait for each other.
  /// @throws configuration_error when Kokkos is not running
  execution_space const& execution();

  /// @brief Starts to send; `bytes` are read until wait() returns, and copied by whoever comes second.
  /// @throws configuration_error when there is no such peer
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);

  /// @brief Starts to receive; `bytes` are written until wait() returns.
  /// @throws configuration_error when there is no such peer
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);

  /// @brief Returns when the transfer is done.
  /// @throws transport_error when sizes differ, the peer has left, another worker failed or time is up
  void wait(request& transfer);

  /// @brief Gives every worker the bytes of all. Workers call together.
  /// @shape      mine: b bytes, the same b on every worker; all: size() * b bytes
  /// @throws     configuration_error when `all` has another size; transport_error, on every worker when the
  ///             workers' calls differ
  /// @complexity one meeting of the workers up to 256 bytes, two above; each worker copies n b bytes
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

  /// @brief Makes every worker's lanes the sum over all workers. Workers call together.
  ///
  /// Integers are added exactly as long as the sums fit (else they wrap), floats in order of ranks.
  /// @shape       lanes: n values, the same n on every worker
  /// @throws      transport_error, on every worker when the workers' calls differ
  /// @complexity  one meeting of the workers up to 256 bytes, two above; each worker adds its n-th of the
  ///              lanes
  /// @determinism the same bits on every worker and in every run
  template <SumLane Lane>
  void allreduce_sum(std::span<Lane> lanes) {
    if (size() == 1) return;
    bytes_sent_ += lanes.size_bytes();
    auto* const bytes = reinterpret_cast<std::byte*>(lanes.data());
    collective(detail::sum_call<Lane>(), bytes, lanes.size_bytes(), [&](auto data_of, bool copies) {
      if (copies) {  // nobody waits for this worker: it adds all lanes itself
        sum_slice<Lane>(0, lanes.size(), data_of, [&](std::size_t at, Lane const* sums, std::size_t count) {
          std::copy_n(sums, count, lanes.data() + at);
        });
        return;
      }
      constexpr std::size_t line = 64 / sizeof(Lane);  // workers do not share cache lines
      std::size_t const lines = (lanes.size() + line - 1) / line;
      auto const workers = world_.crew.size();
      auto const me = static_cast<std::size_t>(rank());
      std::size_t const first = std::min(lanes.size(), lines * me / workers * line);
      std::size_t const last = std::min(lanes.size(), lines * (me + 1) / workers * line);
      sum_slice<Lane>(first, last, data_of, [&](std::size_t at, Lane const* sums, std::size_t count) {
        for (int to = 0; to < size(); ++to)
          std::memcpy(data_of(to) + at * sizeof(Lane), sums, count * sizeof(Lane));
      });
    });
  }

 private:
  friend class threads;

  enum class outcome { ready, failed, left, late };

  endpoint(detail::world& all, int rank)
      : world_{all},
        self_{all.at(rank)},
        polls_{static_cast<unsigned>(all.size) <= std::thread::hardware_concurrency() ? 200 : 0} {}

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const;

  request post(bool sends, int peer, std::byte* data, std::size_t bytes);

  /// Blocks until `ready()`, or until that cannot happen any more. What is ready counts even when the run
  /// has failed meanwhile: workers that hold the same data then come to the same conclusion.
  template <class Ready, class Gone>
  outcome await(Ready const& ready, Gone const& gone) {
    for (int i = 0; i < polls_; ++i)
      if (ready()) return outcome::ready;
    for (int i = 0; i < 50; ++i) {
      if (ready()) return outcome::ready;
      std::this_thread::yield();
    }
    auto const until = std::chrono::steady_clock::now() + world_.deadline;
    std::unique_lock lock{self_.mutex};
    self_.asleep.store(true);
    auto result = outcome::ready;
    while (!ready()) {
      bool const failed = world_.failed.load();
      bool const left = gone();
      bool const late = std::chrono::steady_clock::now() >= until;
      if (failed || left || late) {
        if (!ready()) result = failed ? outcome::failed : left ? outcome::left : outcome::late;
        break;
      }
      self_.awake.wait_until(lock, until);
    }
    self_.asleep.store(false);
    return result;
  }

  /// Tells the others, and makes sure that nobody touches this worker's bytes any more.
  void leave(std::string_view text) noexcept;

  /// Leaves when an exception does that is not from stop(): for want of memory for a message, say.
  struct leaving {
    endpoint& self;
    int const exceptions = std::uncaught_exceptions();
    ~leaving() {
      if (std::uncaught_exceptions() > exceptions) self.leave("an exception left a collective");
    }
  };

  /// Throws, after leave().
  [[noreturn]] void stop(std::string const& text, bool blames_another);

  [[noreturn]] void stop_because_of_failure(char const* operation);

  [[noreturn]] void fail_transfer(detail::operation& op, outcome result);

  /// Returns when every worker has come here as often as this one.
  void meet(char const* operation);

  /// Shows `data` to all workers, and calls `body(data_of, copies)`, where `data_of(rank)` are the bytes
  /// shown by that worker: copies when they are few, so that one meeting suffices, else the originals.
  template <class Body>
  void collective(char const* call, std::byte* data, std::size_t bytes, Body const& body) {
    std::size_t const turn = collectives_++ % 2;
    detail::offer& mine = self_.offers[turn];
    bool const small = bytes <= detail::offer::small_bytes;
    mine.call = call;
    mine.bytes = bytes;
    mine.data = small ? mine.copy.data() : data;
    if (small && bytes != 0) std::memcpy(mine.copy.data(), data, bytes);
    meet(call);
    expect_equal_offers(turn);
    auto const data_of = [this, turn](int from) { return world_.at(from).offers[turn].data; };
    if (small) return body(data_of, true);
    leaving const on_error{*this};
    self_.touching.store(true);
    bool const failed = world_.failed.load();  // then another worker may be leaving, and its bytes with it
    if (!failed) body(data_of, false);
    self_.touching.store(false);
    if (failed) stop_because_of_failure(call);
    meet(call);
  }

  /// Throws, on every worker, when the workers did not call the same collective with the same size.
  void expect_equal_offers(std::size_t turn);

  /// Adds the lanes [first, last) of all workers, in order of ranks, and calls `store(at, sums, count)` for
  /// one tile of sums after the other.
  template <class Lane, class DataOf, class Store>
  void sum_slice(std::size_t first, std::size_t last, DataOf const& data_of, Store const& store) const {
    constexpr std::size_t tile = 4096 / sizeof(Lane);
    Lane sums[tile];
    for (std::size_t at = first; at < last; at += tile) {
      std::size_t const count = std::min(tile, last - at);
      std::memcpy(sums, data_of(0) + at * sizeof(Lane), count * sizeof(Lane));
      for (int from = 1; from < size(); ++from)
        detail::add_lanes(sums, reinterpret_cast<Lane const*>(data_of(from)) + at, count);
      store(at, sums, count);
    }
  }

  detail::world& world_;
  detail::worker& self_;
  int const polls_;
  std::uint64_t meetings_ = 0;
  std::uint64_t collectives_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::optional<execution_space> space_;
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<transport::endpoint> make_endpoint(threads::endpoint& t);
#endif

}  // namespace GLOBALQ_ABI::transport

#if !defined(GLOBALQ_COMPILED)
#include "threads-inl.hpp"
#endif
