// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: processes of one machine that share named memory. Needs no launcher and no MPI.

#include "concept.hpp"
#include "detail/shared_mapping.hpp"
#include "detail/shared_node.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace GLOBALQ_ABI::transport {
namespace detail {
struct shared_problem;
}

/// @brief One of n processes of a machine that share memory.
///
/// All of them pass the same name, which must be new for each job, for example a random one that the starting script
/// passes on. The name is removed once all have joined, so a job that is killed later leaves nothing behind. If a process
/// is killed while others join, the others remove the name. Memory under this name that another user owns, or that
/// other users may access, is refused.
///
/// @code
/// transport::named_memory workers{"job-8f3a", rank, size};
/// @endcode
/// Messages travel as in transport::shared_memory: short ones through rings in the shared memory; long ones the
/// receiver reads from the sender's memory if the system permits that (GLOBALQ_SINGLE_COPY=off disables it).
///
/// After an error the transport is unusable on all processes: their waits throw too. It is also unusable in a forked
/// child process.
class named_memory {
 public:
  /// A transfer. Destroying it before wait() makes the transport unusable, since the peer may still access its memory.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)),
          transfer_(other.transfer_),
          peer_(other.peer_),
          sends_(other.sends_) {}
    request& operator=(request&& other) noexcept {
      request old(std::move(*this));
      of_ = std::exchange(other.of_, nullptr);
      transfer_ = other.transfer_;
      peer_ = other.peer_;
      sends_ = other.sends_;
      return *this;
    }
    ~request() {
      if (of_ != nullptr) of_->give_up();
    }

   private:
    friend class named_memory;
    request(named_memory& of, detail::shared_transfer& t, int peer, bool sends)
        : of_(&of), transfer_(&t), peer_(peer), sends_(sends) {}

    named_memory* of_ = nullptr;
    detail::shared_transfer* transfer_ = nullptr;
    int peer_ = 0;
    bool sends_ = false;
  };

  /// @brief Joins; returns when all have joined.
  /// @param name      letters, digits, '-', '_' and '.', at most 200; the same on all processes, and unique to the job
  /// @param rank      of this process, in [0, size)
  /// @param settings  the deadline of each wait, and of joining
  /// @throws configuration_error for an invalid name, rank or size, if the system refuses memory, or if the name is that
  ///         of another job or user; transport_error if a process has not joined by the deadline
  named_memory(std::string_view name, int rank, int size, options settings = {});

  named_memory(named_memory const&) = delete;
  named_memory& operator=(named_memory const&) = delete;
  ~named_memory();

  /// @brief Connects the same processes once more, through memory of its own, so that another thread may use it, as
  ///        with MPI_Comm_dup. All processes call it.
  /// @throws as the constructor does; transport_error
  [[nodiscard]] std::unique_ptr<named_memory> duplicate();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "named_memory"; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);
  /// @throws transport_error when sizes differ, the peer has left or died, another process failed, or the deadline
  ///         passed
  void wait(request& transfer);
  /// @shape mine: b bytes, the same b on every worker; all: size() * b bytes
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

 private:
  void join(std::string const& name, std::chrono::steady_clock::time_point until);
  std::string message(std::string_view operation, std::string const& what, std::string_view remedy) const;
  /// Informs the other processes, then throws.
  [[noreturn]] void stop(detail::shared_problem const& why);
  void expect_usable(char const* operation) const;
  void give_up() noexcept;

  int rank_, size_;
  std::chrono::nanoseconds deadline_;
  std::uint64_t forks_;             ///< forks before this object's construction
  detail::shared_mapping mapping_;  // outlives the node
  std::unique_ptr<detail::shared_node> node_;
  bool broken_ = false;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace GLOBALQ_ABI::transport

#if !defined(GLOBALQ_COMPILED)
#include "named_memory-inl.hpp"
#endif
