// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: n workers in one process, each a thread.
///
/// A message is copied once: the second of sender and receiver to arrive copies straight from the sender's
/// bytes to the receiver's.

#include "../core/error.hpp"
#include "concept.hpp"
#include "endpoint.hpp"

#include <Kokkos_Core.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace GLOBALQ_ABI::transport {
namespace detail {

struct operation;
struct world;
struct worker;
}  // namespace detail

/// @brief A cluster of n workers in this process. It needs no launcher.
///
/// @code
/// transport::threads cluster{4};
/// cluster.run([&](auto& workers) { ... });  // called once on each of four threads
/// @endcode
///
/// A cluster can run many times, also after a failed run. One thread at a time uses it.
class threads {
 public:
  class endpoint;

  /// @brief Prepares a cluster; threads start with run().
  /// @param workers   at least 1; may exceed the number of cores
  /// @param settings  the deadline of each wait; positive; capped at a year
  /// @throws          configuration_error
  explicit threads(int workers, options settings = {});
  threads(threads&&) noexcept;
  threads& operator=(threads&&) noexcept;
  ~threads();

  /// @brief Number of workers.
  [[nodiscard]] int size() const noexcept;

  /// @brief Calls `body(endpoint)` on size() new threads at once, one for each worker, and joins them.
  ///
  /// If a worker leaves `body` with an exception, every unfinished wait of the others throws transport_error
  /// with its rank and message. Requests and endpoints end with the run.
  /// @param body  callable with `threads::endpoint&`; all threads call the same object
  /// @throws      the exception of the lowest rank that failed on its own, not because of another
  ///              worker; configuration_error if the cluster is already running
  template <class Body>
  void run(Body&& body) {  // not constrained: an error in a generic body would only be "no matching function"
    static_assert(
        std::is_invocable_v<Body&, endpoint&>,
        "globalq: run calls its argument on each worker with the worker's endpoint; pass a function "
        "of one argument: cluster.run([](auto& workers) { ... })");
    run_all([](void* f, endpoint& self) { (*static_cast<std::remove_reference_t<Body>*>(f))(self); },
            const_cast<void*>(static_cast<void const*>(std::addressof(body))));
  }

 private:
  /// run() with the type of its argument erased: calls work(what, endpoint).
  void run_all(void (*work)(void* what, endpoint& self), void* what);

  std::unique_ptr<detail::world> world_;
};

/// @brief One worker of a threads cluster. Only its own thread uses it.
///
/// If the sizes of a send and its receive differ, both sides throw. A wait that throws ends the run for every
/// worker: afterwards no other worker accesses this worker's bytes, and later waits of all workers throw
/// until the next run().
class threads::endpoint {
 public:
  /// @brief Execution space of kernels if the caller names none; a worker uses one core.
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
      if (operation_ != nullptr) give_up();
    }

   private:
    friend class endpoint;
    explicit request(detail::operation& started) : operation_{&started} {}

    void finish();
    void give_up();

    detail::operation* operation_ = nullptr;
  };

  endpoint(endpoint const&) = delete;
  endpoint& operator=(endpoint const&) = delete;
  ~endpoint();

  /// @brief Another endpoint of this worker, whose messages are independent of this one's, so that another thread may
  ///        use it, as with MPI_Comm_dup. All workers call it. It ends with the run.
  /// @throws transport_error; std::bad_alloc, on every worker if memory of worker 0 is exhausted
  [[nodiscard]] std::unique_ptr<endpoint> duplicate();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] std::string_view name() const noexcept { return "threads"; }

  /// @brief Bytes that this worker has sent in this run: those of each send, n - 1 times its bytes of an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  /// @brief This worker's own execution-space instance; workers that shared one would wait for each other.
  /// @throws configuration_error when Kokkos is not running
  execution_space const& execution();

  /// @brief Starts a send; `bytes` are read until wait() returns, by this worker or the receiver.
  /// @throws configuration_error if there is no such peer
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);

  /// @brief Starts a receive; `bytes` are written until wait() returns.
  /// @throws configuration_error if there is no such peer
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);

  /// @brief Blocks until the transfer is complete.
  /// @throws transport_error if sizes differ, the peer has left, another worker failed or the deadline passed
  void wait(request& transfer);

  /// @brief Gives every worker the bytes of all. All workers call it.
  /// @shape      mine: b bytes, the same b on every worker; all: size() * b bytes
  /// @throws     configuration_error if `all` has another size; transport_error, on every worker if the
  ///             workers' calls differ
  /// @complexity one barrier of the workers up to 256 bytes, two above; each worker copies n b bytes
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

  /// @brief Replaces every worker's values by the sum over all workers. All workers call it.
  ///
  /// Integer sums are exact if they fit, and wrap otherwise. Floats are added in order of ranks.
  /// @shape       values: n values, the same n on every worker
  /// @throws      transport_error, on every worker if the workers' calls differ
  /// @complexity  one barrier of the workers up to 256 bytes, two above; then each worker adds one n-th of
  ///              the values
  /// @determinism the same bits on every worker and in every run
  template <Summand Value>
  void allreduce_sum(std::span<Value> values);

 private:
  friend class threads;

  enum class wait_result { ready, failed, left, late };

  endpoint(detail::world& all, int rank, std::shared_ptr<detail::world> own = {});

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const;

  request post(bool sends, int peer, std::byte* data, std::size_t bytes);

  /// Blocks until `ready()`, or until that is impossible. A ready state counts even if the run has failed
  /// meanwhile, so that workers with the same data come to the same conclusion.
  template <class Ready, class Gone>
  wait_result await(Ready const& ready, Gone const& gone);

  /// Informs the others, and ensures that no other worker accesses this worker's bytes any more.
  void leave(std::string_view text) noexcept;

  struct leaving;

  /// Throws, after leave().
  [[noreturn]] void stop(std::string const& text, bool blames_another);

  [[noreturn]] void stop_because_of_failure(char const* operation);

  [[noreturn]] void fail_transfer(detail::operation& op, wait_result result);

  /// Barrier: returns when every worker has called it as often as this one.
  void meet(char const* operation);

  struct shown;  // the bytes that each worker exposes in a collective

  /// Exposes `data` to all workers, and calls `body(data_of, copies)`. `data_of(rank)` are the bytes of that worker:
  /// copies if they are few, so that one barrier suffices, else the originals.
  template <class Body>
  void collective(char const* call, std::byte* data, std::size_t bytes, Body const& body);
  void collective(char const* call, std::byte* data, std::size_t bytes,
                  void (*body)(void const* what, shown const& data_of, bool copies), void const* what);

  /// Throws, on every worker, unless the workers called the same collective with the same size.
  void expect_equal_offers(std::size_t turn);

  /// Adds the values [first, last) of all workers in order of ranks, and writes the sums to `out`, or to all workers if
  /// it is null.
  template <class Value>
  void sum_slice(std::size_t first, std::size_t last, shown const& data_of, Value* out) const;

  std::shared_ptr<detail::world> own_;  ///< of a duplicate: keeps its world alive
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
