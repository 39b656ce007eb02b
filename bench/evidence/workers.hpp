// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: one type for the endpoints of all transports, so that every method is compiled once. It measures
/// the processor time of the worker inside the transport.

#ifdef GLOBALQ_HAS_MPI
#include <mpi.h>
#include <globalq/transport/mpi.hpp>
#endif
#include <globalq/transport/collectives.hpp>
#include <globalq/transport/threads.hpp>

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace evidence {

namespace gq = globalq;

using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point begin) {
  return std::chrono::duration<double>(clock::now() - begin).count();
}

/// @brief Processor time of this thread in seconds; sleeping and time of other threads on its core do not count.
inline double thread_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// @brief A transport of either kind, constructed from an endpoint that must outlive it. Kernels run on the calling
/// thread.
class workers {
  using threads = gq::transport::threads::endpoint;
#ifdef GLOBALQ_HAS_MPI
  using held = std::variant<threads*, gq::transport::mpi*>;
  using transfer = std::variant<threads::request, gq::transport::mpi::request>;
#else
  using held = std::variant<threads*>;
  using transfer = std::variant<threads::request>;
#endif

 public:
  using execution_space = Kokkos::Serial;

  class request {
   public:
    request() = default;

   private:
    friend class workers;
    explicit request(transfer t) : transfer_(std::move(t)) {}
    transfer transfer_;
  };

  template <class Endpoint>
  explicit workers(Endpoint& here) : here_(&here) {}
  workers(workers const&) = delete;
  workers& operator=(workers const&) = delete;

  int rank() const {
    return std::visit([](auto* t) { return t->rank(); }, here_);
  }
  int size() const {
    return std::visit([](auto* t) { return t->size(); }, here_);
  }
  std::uint64_t bytes_sent() const {
    return std::visit([](auto* t) { return t->bytes_sent(); }, here_);
  }
  std::size_t chunk_bytes() const {
    return std::visit([](auto* t) { return gq::transport::chunk_bytes_of(*t); }, here_);
  }
  execution_space const& execution() const { return space_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    inside const counted(*this);
    return std::visit([&](auto* t) { return request(t->send_async(peer, bytes)); }, here_);
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    inside const counted(*this);
    return std::visit([&](auto* t) { return request(t->recv_async(peer, bytes)); }, here_);
  }
  void wait(request& r) {
    inside const counted(*this);
    std::visit(
        [&](auto* t) {
          using own = typename std::remove_pointer_t<decltype(t)>::request;
          if (auto* const started = std::get_if<own>(&r.transfer_)) t->wait(*started);  // else: none was
        },
        here_);
  }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    inside const counted(*this);
    std::visit([&](auto* t) { gq::transport::allgather(*t, mine, all); }, here_);
  }
  template <gq::transport::Summand Value>
  void allreduce_sum(std::span<Value> values) {
    inside const counted(*this);
    std::visit([&](auto* t) { t->allreduce_sum(values); }, here_);
  }
  void retain(std::shared_ptr<void> buffers) {
    std::visit(
        [&](auto* t) {
          if constexpr (gq::transport::OwnRetain<std::remove_pointer_t<decltype(t)>>)
            t->retain(std::move(buffers));
        },
        here_);
  }

  /// Processor time in seconds of this worker inside these functions: copying, polling, system calls.
  double seconds_inside() const { return seconds_inside_; }

 private:
  struct inside {
    explicit inside(workers& w) : of(w), began(thread_seconds()) {}
    inside(inside const&) = delete;
    inside& operator=(inside const&) = delete;
    ~inside() { of.seconds_inside_ += thread_seconds() - began; }
    workers& of;
    double began;
  };

  held here_;
  execution_space space_;
  double seconds_inside_ = 0;
};

static_assert(gq::Transport<workers> && gq::transport::OwnAllgather<workers> &&
              gq::transport::OwnAllreduceSum<workers, float> && gq::transport::OwnBytesSent<workers> &&
              gq::transport::OwnChunkBytes<workers> && gq::transport::OwnExecution<workers> &&
              gq::transport::OwnRetain<workers>);

/// Every worker's value.
template <class T>
std::vector<T> gather(workers& all, T const& mine) {
  std::vector<T> values(static_cast<std::size_t>(all.size()));
  gq::transport::allgather_value(all, mine, std::span(values));
  return values;
}

}  // namespace evidence
