// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: the processes of an MPI communicator, with bytes in host memory, and in device memory if MPI can.
///
/// Processes of one node exchange messages through shared memory, the others through MPI.

#if !__has_include(<mpi.h>)
#error "globalq: transport/mpi.hpp needs <mpi.h>; link the target globalq::mpi, or compile with mpicxx"
#endif

#include "../core/error.hpp"
#include "concept.hpp"
#include "endpoint.hpp"

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport {
namespace detail {
struct mpi_node;
struct shared_transfer;
struct shared_problem;
}  // namespace detail

/// @brief How processes of one node share memory; the same on every worker.
struct sharing {
  bool enabled = true;  ///< false: all messages use MPI

  /// At most this many processes of a node, neighbors in rank, share memory; 0: all. With 2, a machine that runs
  /// four processes behaves like two nodes, for tests.
  int group = 0;

  /// The receiver reads long messages from the sender's memory (process_vm_readv) if the system permits that.
  /// false: long messages go through the shared memory, as short ones do.
  bool single_copy = true;

  /// Size in bytes of the ring from one process to another: a power of two of at least 256; 0: 256 KiB,
  /// or less for many processes.
  std::size_t ring_bytes = 0;
};

/// @brief One process of an MPI communicator.
///
/// It uses its own copy of the communicator, so its messages never match the caller's. One thread at a time
/// uses it; the level given to MPI_Init_thread determines which threads may.
///
/// Messages between processes of one node go through shared memory (see sharing). That is faster than the MPI
/// library for short messages, and as fast or faster for long ones (docs/design.md). Results do not depend on
/// it. If GLOBALQ_SHARED_MEMORY=off is set in the environment of any process, all messages use MPI;
/// GLOBALQ_SINGLE_COPY=off disables reading other processes' memory. If the system refuses shared memory, all
/// messages use MPI as well; shares_memory() reports it.
///
/// Failures: every MPI status is checked, and every wait has a deadline. After a wait threw, or a request was
/// destroyed before wait(), later messages could match the wrong ones. The transport is therefore
/// broken: every later use throws at once. Workers of the same node throw in their next wait that
/// blocks; the others throw at their own deadlines, since MPI cannot notify them. All workers
/// together may then make a new transport from the same communicator.
///
/// If the sizes of a send and its receive differ, the receiver throws; the sender cannot detect it.
///
/// Memory: buffers of transfers within a node may be freed as soon as a transfer is given up. Between nodes, a receive
/// that is given up is canceled, but a send or a partial transfer cannot be; see retain().
class mpi {
 public:
  /// @brief Execution space of kernels if the caller names none.
  using execution_space = Kokkos::DefaultHostExecutionSpace;

  /// @brief The largest number of bytes in one MPI message; MPI counts are int.
  static constexpr std::size_t largest_piece = std::size_t{1} << 30;

  /// @brief A transfer. It refers to its transport, which must outlive it. Destroying it before
  ///        wait() gives the transfer up and breaks the transport.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : owner_{std::exchange(other.owner_, nullptr)},
          bytes_{other.bytes_},
          peer_{other.peer_},
          sends_{other.sends_},
          shared_{other.shared_},
          first_{other.first_},
          more_{std::move(other.more_)} {}
    request& operator=(request&& other) noexcept {
      request old{std::move(*this)};
      owner_ = std::exchange(other.owner_, nullptr);
      bytes_ = other.bytes_;
      peer_ = other.peer_;
      sends_ = other.sends_;
      shared_ = other.shared_;
      first_ = other.first_;
      more_ = std::move(other.more_);
      return *this;
    }
    ~request() {
      if (owner_ != nullptr) owner_->give_up(*this);
    }

   private:
    friend class mpi;
    request(mpi& owner, std::size_t bytes, int peer, bool sends)
        : owner_{&owner}, bytes_{bytes}, peer_{peer}, sends_{sends} {}

    MPI_Request& piece(std::size_t index) { return index == 0 ? first_ : more_[index - 1]; }

    mpi* owner_ = nullptr;
    std::size_t bytes_ = 0;
    int peer_ = 0;
    bool sends_ = false;
    detail::shared_transfer* shared_ = nullptr;  // within a node; the following members are for MPI
    MPI_Request first_ = MPI_REQUEST_NULL;
    std::vector<MPI_Request> more_;  // the further pieces of a message above one piece
  };

  /// @brief Joins the processes of a communicator; all of them call it.
  /// @param communicator  an intracommunicator; it is copied, and not used afterwards
  /// @param settings      the deadline of each wait; positive; capped at a year
  /// @param piece_bytes   longer messages are split into pieces of this size, in [1, largest_piece]; the same on
  ///                      every worker
  /// @param within_node   how processes of one node share memory
  /// @throws              configuration_error if MPI is not running or an argument is invalid;
  ///                      transport_error
  explicit mpi(MPI_Comm communicator, options settings = {}, std::size_t piece_bytes = largest_piece,
               sharing within_node = {});

  mpi(mpi const&) = delete;
  mpi& operator=(mpi const&) = delete;

  /// @brief Frees the communicator, unless MPI is finalized or the transport is broken.
  ~mpi();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "mpi"; }

  /// @brief The number of other workers with which this one exchanges messages through shared memory.
  [[nodiscard]] int shares_memory() const noexcept;

  /// @brief Whether messages to and from @p peer may be in CUDA device memory: if the MPI library supports it and
  ///        the peer is on another node. GLOBALQ_DEVICE_MEMORY=off in the environment of this process disables it.
  [[nodiscard]] bool takes_device_memory(int peer) const noexcept;

  /// @brief Recommended message size in bytes for vectors that are sent in chunks.
  ///
  /// Between nodes 32 KiB, so that MPI sends eagerly, without a handshake with the receiver (up to 64 KiB over TCP):
  /// over links of 1 Gbit/s means take 0.6 to 0.8 of the time that they take with messages of 256 KiB.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept;

  /// @brief Bytes that this worker has sent: those of each send, n - 1 times its bytes of an allgather, and once
  ///        the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  /// @brief The default instance of the host's execution space.
  /// @throws configuration_error if Kokkos is not running
  [[nodiscard]] execution_space execution() const;

  /// @brief Keeps buffers alive while MPI may use them, for a caller that gives up a transfer.
  ///
  /// They are released when no transfer is pending; if transfers never finish, they live as long as the
  /// process.
  void retain(std::shared_ptr<void> buffers) noexcept;

  /// @brief Starts a send; `bytes` are read until wait() returns.
  /// @throws configuration_error if there is no such peer; transport_error
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);

  /// @brief Starts a receive; `bytes` are written until wait() returns.
  /// @throws configuration_error if there is no such peer; transport_error
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);

  /// @brief Blocks until the transfer is complete: until its bytes arrived, or may be written again.
  /// @throws transport_error if sizes differ, the deadline passed or MPI fails
  void wait(request& transfer);

  /// @brief Gives every worker the bytes of all. All workers call it.
  ///
  /// A failure leaves `all` unchanged, except this worker's slot, for up to 4,080 bytes a worker within a node and up
  /// to 64 KiB in total between nodes.
  /// @shape  mine: b bytes, the same b on every worker; all: size() * b bytes
  /// @throws configuration_error if `all` has another size; transport_error
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

  /// @brief Replaces every worker's values by the sum over all workers. All workers call it.
  ///
  /// Integer sums are exact if they fit. The MPI library determines the order in which floats are
  /// added.
  /// @shape       values: n values, the same n on every worker
  /// @throws      transport_error; the values are then unspecified, and MPI may still write to them (retain())
  /// @determinism integers: exact. float: the same bits on every worker if the library computes each sum
  ///              once or adds in one order, as the algorithms of Open MPI and MPICH do
  template <Summand Value>
  void allreduce_sum(std::span<Value> values);

  /// Throws unless threads other than the one that initialized MPI may move messages (allreduce_mean's start()).
  /// @throws configuration_error
  void expect_threads();

 protected:
  enum class reach { any, one_node };

  mpi(MPI_Comm communicator, options const& settings, std::size_t piece_bytes, sharing const& within_node,
      reach who);

 private:
  static constexpr int last_piece = 0;  // tags: whether more of the message follows
  static constexpr int more_follows = 1;
  static constexpr int never_sent = 2;

  /// MPI may still use these buffers: they live as long as the process. Allocates nothing.
  static void keep_forever(std::shared_ptr<void> buffers) noexcept;

  static bool finalized() noexcept;

  [[noreturn]] static void refuse(std::string const& what, std::string const& remedy);

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const;

  /// Throws, and marks the transport broken.
  [[noreturn]] void stop(std::string const& text, char const* why);

  /// Checks the status of every MPI call.
  void check(int code, char const* call);

  void expect_usable(char const* operation) const;

  std::size_t pieces_of(std::size_t bytes) const;

  std::size_t bytes_of_piece(std::size_t bytes, std::size_t index) const;

  request start(bool sends, int peer, std::byte* data, std::size_t bytes);

  enum class ending { done, late, failed };

  /// Polls until the request is complete, with its status and return code; the deadline passes; or another worker of
  /// the node has failed.
  ending poll(MPI_Request& transfer, MPI_Status& status, int& code, std::chrono::nanoseconds longest);

  void finish_collective(MPI_Request& transfer, char const* operation, char const* call);

  /// "receive 64 bytes": the missing action of the peer of a transfer.
  static std::string missing(request const& transfer);

  [[noreturn]] void fail_late(request const& transfer);

  /// Throws unless the piece has the size and the place in its message that were expected.
  void expect_piece(request const& transfer, std::size_t index, std::size_t pieces, MPI_Status const& status,
                    int code);

  [[noreturn]] void fail_sizes(request const& transfer, std::string const& sent);

  // ---- Within the node

  static bool switched_off(char const* variable);

  /// Joins the processes of this node, if sharing is enabled on every worker.
  void join(sharing const& chosen, reach who);

  /// Throws, on every worker, unless all share memory.
  void expect_one_node();

  [[noreturn]] static void refuse_sharing(std::string const& what, std::string const& remedy);

  /// Makes MPI progress during waits within the node; true if MPI transfers are pending.
  bool move_messages();

  void wait_within_node(request& transfer);

  void allgather_within_node(std::span<std::byte const> mine, std::span<std::byte> all);

  [[noreturn]] void fail_because_of_another(char const* operation);

  [[noreturn]] void fail_within_node(detail::shared_problem const& why);

  /// A transfer has ended: MPI no longer uses its bytes.
  void settle_one();

  /// Ends an abandoned request, if that is possible within a moment.
  void give_up(request& transfer) noexcept;

  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<detail::mpi_node> here_;  // the processes of this node
  std::chrono::nanoseconds const deadline_;
  std::size_t const piece_bytes_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool device_memory_ = false;                                          // MPI moves CUDA device memory
  char const* broken_ = nullptr;                                        // the reason, if broken
  std::chrono::nanoseconds patience_ = std::chrono::milliseconds{100};  // for transfers that are given up
  std::uint64_t outstanding_ = 0;                                       // transfers started and not yet ended
  std::uint64_t bytes_sent_ = 0;
  std::shared_ptr<std::vector<std::byte>> staging_;
  std::vector<std::shared_ptr<void>> retained_;
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint> make_endpoint(mpi& t);
#endif

}  // namespace GLOBALQ_ABI::transport

#if !defined(GLOBALQ_COMPILED)
#include "mpi-inl.hpp"
#endif
