// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: the ranks of an NCCL communicator, with bytes in device memory and all work on one CUDA stream.

#if !__has_include(<nccl.h>)
#error "globalq: transport/nccl.hpp needs <nccl.h>; link the target globalq::nccl"
#endif

#include "../core/error.hpp"
#include "../stream.hpp"
#include "collectives.hpp"
#include "concept.hpp"
#include "detail/nccl_communicator.hpp"
#include "detail/nccl_runtime.hpp"
#include "endpoint.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport {

/// @brief One rank of an NCCL communicator. Messages are in device memory; work is ordered with the caller's stream.
///
/// A wait does not block the host; it orders the stream: `wait(request)` returns when the transfer is enqueued,
/// and work that is enqueued afterwards runs after it. Only allgather() of host memory and synchronize() block
/// the host. Everything else can be captured in a CUDA graph once it has run outside (NCCL connects collectives at
/// the first one); destroy the graph before the transport.
///
/// A stream runs its work in order, so transfers are collected, and a wait starts the pending ones that it needs in
/// NCCL groups; transfers of a group progress together. A group takes the first pending send to each peer and the first
/// pending receive from each: the k-th messages of all workers travel together, and receives may be posted early. That
/// suits schedules whose workers proceed in lockstep. It deadlocks if a wait ends only after a peer received a later
/// message in the same direction; schedule::tree in chunks does that, so allreduce_mean refuses
/// globalq::options::chunk_values there. A collective first starts all pending transfers.
///
/// A group with a message of at least overlap_bytes runs on a stream of the transport's own, with the highest priority:
/// after the work that was on the caller's stream when the group's last transfer was posted (if that one is short, or a
/// group of short messages came in between: when it was awaited), and before work that is enqueued after the wait. Kernels
/// enqueued between post and wait run at the same time. In a capture, wait for what was posted in it, and for nothing else.
///
/// Do not make calls between your own ncclGroupStart and ncclGroupEnd: NCCL starts nothing before the outer group
/// ends, and later work on the stream would read bytes that have not arrived. Each transport of a
/// process needs its own thread, and one thread at a time uses it.
///
/// NCCL does not compare sizes: if those of a send and its receive differ, the received bytes are unspecified, or the
/// stream stalls until a deadline. Empty messages travel too, so transport::barrier() orders the streams of all
/// workers.
///
/// The calling thread enqueues messages. With NCCL before 2.18, or if NCCL_COMM_SPLIT_SHARE_RESOURCES=0 is set, NCCL
/// starts a thread for each group (15 to 40 us). The constructor connects the workers for messages; the first
/// collectives connect them for collectives, and block the host until all workers have called.
///
/// Failures: every status is checked, and NCCL's asynchronous errors before work is enqueued and while the host
/// waits. The deadline bounds each wait of the host, also for connections. After a failure, or when a request is
/// destroyed before wait(), the communicator is aborted: its kernels end, and no message accesses memory
/// any more; every later call throws the first error again. Other workers detect it through NCCL or at their deadlines.
/// cudaStreamSynchronize has no deadline; synchronize() has one. With two ranks as threads of one process on one GPU (NCCL
/// 2.30.7), the kernel of an aborted receive ended with an illegal memory access, after which the process cannot use the
/// GPU: give each rank a process if a run must survive the failure of a worker.
class nccl {
 public:
  static constexpr bool on_stream = true;

  /// @brief Messages of this length overlap with kernels. For shorter ones the two events of a group cost more than they
  ///        save.
  static constexpr std::size_t overlap_bytes = std::size_t{256} << 10;

  /// @brief A posted send or receive. It refers to its transport, which must outlive it. Destroying it before
  ///        wait() breaks the transport.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : owner_{std::exchange(other.owner_, nullptr)}, number_{other.number_} {}
    request& operator=(request&& other) noexcept {
      request old{std::move(*this)};
      owner_ = std::exchange(other.owner_, nullptr);
      number_ = other.number_;
      return *this;
    }
    ~request() {
      if (owner_ != nullptr) owner_->give_up();
    }

   private:
    friend class nccl;
    request(nccl& owner, std::uint64_t number) : owner_{&owner}, number_{number} {}

    nccl* owner_ = nullptr;
    std::uint64_t number_ = 0;  // among this transport's transfers, in posting order
  };

  /// @brief Uses a communicator of the caller. All workers call it.
  ///
  /// The caller owns the communicator, does not use it for anything else meanwhile, and destroys it afterwards, unless
  /// the transport failed: then communicator() is null, and the communicator was aborted and freed. A blocking
  /// communicator (ncclCommInitRank) is revoked at the deadline if a peer never connects; NCCL before 2.28.7 cannot
  /// revoke, and hangs. One with ncclConfig_t::blocking = 0 needs neither. If this constructor fails to connect the
  /// workers, it aborts the communicator; if it fails earlier (allocation, validation), it does not touch it.
  /// @param communicator  initialized; all of its ranks make a transport
  /// @param stream        of the communicator's device; outlives the transport
  /// @param settings      the deadline of each wait of the host; positive; capped at a year
  /// @throws              configuration_error; transport_error
  nccl(ncclComm_t communicator, cudaStream_t stream, options settings = {});

  /// @brief Makes a communicator on the current device, from an id that rank 0 got by ncclGetUniqueId and sent to all.
  ///        All workers call it.
  ///
  /// It makes two: a non-blocking one connects within the deadline, and a blocking one is split off it for messages.
  /// @throws configuration_error; transport_error, also if not all workers call before the deadline
  nccl(ncclUniqueId const& id, int rank, int size, cudaStream_t stream, options settings = {});

  /// @brief Makes a communicator among the workers of another transport, such as mpi, which carries the id. All workers
  ///        call it, each with its device current.
  /// @throws configuration_error; transport_error
  template <Transport Host>
  requires(!std::same_as<Host, nccl>) nccl(Host& workers, cudaStream_t stream, options settings = {})
      : nccl{id_for(*make_endpoint(workers)), workers.rank(), workers.size(), stream, settings} {}

  nccl(nccl const&) = delete;
  nccl& operator=(nccl const&) = delete;

  /// @brief Waits for the stream, up to the deadline, unless it is being captured, then releases the communicator.
  ///        Workers together destroy one that this transport made, up to the deadline.
  ~nccl();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "nccl"; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  /// @brief The communicator of the messages; null after a failure.
  [[nodiscard]] ncclComm_t communicator() const noexcept { return communicator_.get(); }

  /// @brief Recommends messages that together, one to each worker, have 16 MiB, for schedules whose chunks overlap: a chunk
  ///        costs about 40 us of launches and exchanges, and hides its kernels or its transfers, whichever take less.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return std::max(overlap_bytes, (std::size_t{16} << 20) / static_cast<std::size_t>(size_));
  }

  /// @brief Bytes that this worker has sent: those of each send, n - 1 times its bytes of an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

#if defined(KOKKOS_ENABLE_CUDA)
  /// @brief Execution space of kernels if the caller names none.
  using execution_space = Kokkos::Cuda;

  /// @brief An instance that launches on stream().
  /// @throws configuration_error if Kokkos is not running
  [[nodiscard]] execution_space execution() const {
    detail::expect_kokkos("nccl");
    return execution_space{stream_};
  }
#endif

  /// @brief Posts a send; `bytes` are read between this call and wait(), in the order of the stream.
  /// @param bytes  device memory, written by work that is already on the stream
  /// @throws       configuration_error if there is no such peer or the bytes are not device memory; transport_error
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);

  /// @brief Posts a receive; `bytes` are written between this call and wait(), in the order of the stream.
  /// @param bytes  device memory
  /// @throws       configuration_error if there is no such peer or the bytes are not device memory; transport_error
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);

  /// @brief Starts the transfer. Work that is enqueued on the stream from now on runs after it.
  /// @throws transport_error
  void wait(request& posted);

  /// @brief Gives every worker the bytes of all. All workers call it, all with device memory or all with host memory.
  ///
  /// Device memory: enqueued. Host memory: copied through pinned memory, and the host waits for the stream; a failure
  /// leaves `all` unchanged up to 64 KiB a worker (less above 16 workers: 1 MiB in total).
  /// @shape  mine: b bytes, the same b on every worker; all: size() * b bytes; mine may be slot rank() of all
  /// @throws configuration_error if `all` has another size, only one of them is device memory, or host memory
  ///         is given while the stream is being captured; transport_error
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

  /// @brief Replaces every worker's values by the sum over all workers. All workers call it. Enqueued.
  ///
  /// Integer sums are exact if they fit. NCCL determines the order in which floats are added.
  /// @shape       values: n values in device memory, the same n on every worker; any n
  /// @throws      configuration_error if the values are not device memory; transport_error
  /// @determinism integers: exact. float: the same bits on every worker, since NCCL computes each sum in one place
  template <Summand Value>
  requires(!std::same_as<Value, std::int16_t>) void allreduce_sum(std::span<Value> values) {
    sum(values.data(), values.size(), values.size_bytes(), detail::nccl_type<Value>());
  }

  /// Result type of allreduce_sum of int16: not void, so that OwnAllreduceSum is not satisfied.
  struct no_such_sum {};

  /// @brief NCCL has no 16-bit integer type: throws before any communication.
  /// @throws configuration_error
  [[noreturn]] no_such_sum allreduce_sum(std::span<std::int16_t>);

  /// @brief Blocks until all work on the stream has run. Pending transfers are not on it yet.
  /// @throws transport_error if the deadline passed or a transfer failed; configuration_error during capture
  void synchronize();

 private:
  struct transfer {
    std::byte* data;  // a sender's bytes are only read
    std::size_t bytes;
    int peer;
    bool sends;
    std::uint64_t number;
    cudaEvent_t ready;  // recorded when it was posted, if it overlaps; else null
  };

  /// The last enqueued work, for messages: transfers, or a collective.
  struct work {
    char const* operation = "nccl";
    char const* call = "NCCL";
  };

  /// How a wait for the stream ended.
  struct stream_status {
    cudaError_t cuda = cudaSuccess;
    ncclResult_t nccl = ncclSuccess;
    bool late = false;
    [[nodiscard]] bool late_or_failed() const { return late || cuda != cudaSuccess || nccl != ncclSuccess; }
  };

  nccl(cudaStream_t stream, options const& settings);

  static ncclUniqueId id_for(endpoint& workers);

  /// Reads rank, size and device of the communicator, and allocates.
  void prepare(ncclComm_t communicator);

  /// Connects every worker with every other one. NCCL connects in the group of the first messages, and the host waits
  /// for all peers of that group. With the groups of a schedule, workers would wait for each other in a ring; this
  /// group is the same on all workers.
  void greet_all();

  [[noreturn]] static void refuse(std::string const& what, std::string const& remedy);

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const;

  // ---- Posting and starting

  request post(bool sends, int peer, std::byte* data, std::size_t bytes);

  bool is_pending(std::uint64_t number) const;

  void start_all();

  /// Starts the first pending transfer of each peer and direction concurrently.
  void start_group();

  ncclResult_t enqueue(std::vector<transfer> const& group, cudaStream_t stream);

  detail::own_event make_event();

  /// Marks the work that is on the stream now.
  cudaEvent_t record();

  /// The stream of the group: the caller's, or the own one, which then waits for what the group needs.
  cudaStream_t stream_of_group();

  /// Moves the first transfers of each peer and direction from pending_ to group_.
  void choose_group();

  /// Both ends of a message of a worker to itself must be in one group and have the same size; no other worker posts
  /// one.
  void expect_messages_to_itself();

  void allgather_host(std::span<std::byte const> mine, std::span<std::byte> all);

  void sum(void* values, std::size_t count, std::size_t bytes, ncclDataType_t type);

  // ---- Memory

  bool is_device_memory(void const* data);

  /// Refuses host memory even if the device can read it: the host could not detect when it is written.
  void expect_device_memory(char const* operation, void const* data, std::size_t count);

  void refuse_capture(char const* operation);

  // ---- Waiting

  /// Waits, up to the deadline, until the stream is idle.
  stream_status status_of_stream() const;

  void await_stream();

  // ---- Failures

  void expect_usable() const;

  /// Throws if earlier enqueued work has failed.
  void expect_healthy();

  /// Checks the status of every NCCL call; ncclInProgress means that the deadline passed.
  void check(ncclResult_t result);

  /// Checks the status of every CUDA call.
  void check(cudaError_t code, char const* call);

  [[noreturn]] void fail(ncclResult_t result);

  [[noreturn]] void fail_late(std::string const& where);

  /// "send" , "recv" or "send and recv"
  static char const* operation_of(std::vector<transfer> const& group);

  /// The missing actions of the peers of the last work: "rank 1 to send 64 bytes, rank 3 to receive 64 bytes"
  std::string needs() const;

  /// Aborts pending work on the device, then throws.
  [[noreturn]] void stop(std::string text);

  void abort() noexcept;

  /// Called when a request is destroyed before wait().
  void give_up() noexcept;

  int rank_ = 0;
  int size_ = 1;
  int device_ = 0;
  cudaStream_t const stream_;
  std::chrono::nanoseconds const deadline_;
  detail::nccl_communicator communicator_;
  bool owned_ = false;
  bool prepared_ = false;
  std::vector<transfer> pending_;  // posted and not started
  std::vector<transfer> group_;    // started last
  std::uint64_t posted_ = 0;
  std::uint64_t groups_ = 0;
  std::vector<std::uint64_t> group_of_;  // the last group that took a receive from, or a send to, each peer
  detail::own_stream beside_;            // of groups that overlap
  detail::own_event mark_;               // their end, or their start if no post has marked it
  std::vector<detail::own_event> events_;
  std::vector<cudaEvent_t> idle_events_;
  std::uint64_t posted_before_ = 0;  // of transfers, at the last group on the caller's stream
  work last_;
  std::uint64_t bytes_sent_ = 0;
  std::size_t piece_bytes_ = 0;
  detail::pinned_memory pinned_;  // staging of small host values
  detail::device_memory staging_;
  std::string failure_;  // the error of every later call; empty: none
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint_for<place_of<nccl>>> make_endpoint(nccl& t);
#endif

}  // namespace GLOBALQ_ABI::transport

#if !defined(GLOBALQ_COMPILED)
#include "nccl-inl.hpp"
#endif
