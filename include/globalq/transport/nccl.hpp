// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: the ranks of an NCCL communicator, with bytes in device memory and all work on one CUDA stream.

#if !__has_include(<nccl.h>)
#error "globalq: transport/nccl.hpp needs <nccl.h>; link the target globalq::nccl"
#endif
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <Kokkos_Core.hpp>
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

#include "globalq/core/error.hpp"
#include "globalq/transport/collectives.hpp"
#include "globalq/transport/concept.hpp"
#include "globalq/transport/detail/nccl_communicator.hpp"
#include "globalq/transport/detail/nccl_runtime.hpp"
#include "globalq/transport/endpoint.hpp"

namespace GLOBALQ_ABI::transport {

/// @brief One rank of an NCCL communicator. Messages are device memory; everything runs on the caller's stream.
///
/// A wait is an order on the stream, not a pause of the host: `wait(request)` returns when the transfer is enqueued,
/// and what is put on the stream afterwards runs after it. Only allgather() of host memory and synchronize() wait on
/// the host. So everything else can be captured in a CUDA graph, once it has run outside (NCCL connects collectives at
/// the first one); destroy the graph before the transport.
///
/// A stream runs one thing after the other, so transfers are collected, and what a wait needs starts in NCCL groups, in
/// which none waits for another. A group takes the first pending send to each peer and the first pending receive from
/// each: the k-th messages of all workers travel together, and receives may be posted ahead of their time. That suits
/// schedules in which workers go in step, as those of globalq do with whole segments (chunk_bytes()). What cannot work
/// is a wait that ends only after a peer got a later message in the same direction; schedule::tree in chunks does that,
/// so allreduce_mean refuses globalq::options::chunk_values there. A collective starts all that is pending before it.
///
/// Calls are not made between the caller's own ncclGroupStart and ncclGroupEnd: there NCCL starts nothing before the
/// caller's group ends, and what follows on the stream would read bytes that have not arrived. Each transport of a
/// process has a thread of its own, and one thread at a time uses it.
///
/// NCCL does not compare sizes: where a send and its receive differ, the received bytes are unspecified or the stream
/// stops until a deadline. Empty messages travel too, so transport::barrier() orders the streams of all workers.
///
/// The calling thread enqueues messages; with NCCL before 2.18, or while NCCL_COMM_SPLIT_SHARE_RESOURCES=0 is set, NCCL
/// starts a thread for each group (15 to 40 us). Workers are connected for messages when the transport is made, and for
/// collectives by the first ones, which pause the host until all workers have come.
///
/// Failures: every status is checked, NCCL's asynchronous errors too, before work is enqueued and while the host
/// waits. The deadline bounds each wait of the host, also that for connections. After a failure, or when a request is
/// destroyed before it was waited for, the communicator is aborted: its kernels end, and no message touches memory any
/// more; every later call throws the first error again. Other workers hear of it by NCCL or by their own deadlines.
/// cudaStreamSynchronize knows no deadline: synchronize() does.
class nccl {
 public:
  static constexpr bool on_stream = true;

  /// @brief A send or receive that is posted. It refers to its transport, which outlives it. Destroying it before
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
    std::uint64_t number_ = 0;  // of this transport's transfers, in the order in which they were posted
  };

  /// @brief Uses a communicator of the caller's. Workers call together.
  ///
  /// The communicator stays the caller's, who uses it for nothing else meanwhile and destroys it afterwards, unless the
  /// transport failed: communicator() is then null, and the communicator aborted and freed. One that blocks
  /// (ncclCommInitRank) is revoked at the deadline where a peer never connects; with NCCL before 2.28.7, which cannot
  /// revoke, that hangs. One with ncclConfig_t::blocking = 0 needs neither. Where this constructor fails to connect the
  /// workers, the communicator is aborted too; before that (memory, what the communicator is) it is left alone.
  /// @param communicator  initialized; all of its ranks make a transport
  /// @param stream        of the communicator's device; outlives the transport
  /// @param settings      the deadline of each wait of the host; above 0, and counted as at most a year
  /// @throws              configuration_error; transport_error
  nccl(ncclComm_t communicator, cudaStream_t stream, options settings = {});

  /// @brief Makes a communicator on the current device, from an id that rank 0 got by ncclGetUniqueId and gave to all.
  ///        Workers call together.
  ///
  /// Two, in fact: one that does not block connects within the deadline, and one that blocks is split off for messages.
  /// @throws configuration_error; transport_error, also when not all workers call before the deadline
  nccl(ncclUniqueId const& id, int rank, int size, cudaStream_t stream, options settings = {});

  /// @brief Makes a communicator among the workers of another transport, such as mpi, which carries the id. Workers
  ///        call together, each with its device current.
  /// @throws configuration_error; transport_error
  template <Transport Host>
  requires(!std::same_as<Host, nccl>) nccl(Host& workers, cudaStream_t stream, options settings = {})
      : nccl{id_for(*make_endpoint(workers)), workers.rank(), workers.size(), stream, settings} {}

  nccl(nccl const&) = delete;
  nccl& operator=(nccl const&) = delete;

  /// @brief Waits for the stream, up to the deadline, unless it is being captured, then lets go of the communicator.
  ///        One that was made here is destroyed; its workers meet for that, up to the deadline.
  ~nccl();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "nccl"; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  /// @brief The communicator of the messages; null once the transport failed.
  [[nodiscard]] ncclComm_t communicator() const noexcept { return communicator_.get(); }

  /// @brief Messages had best be whole segments: on one stream nothing overlaps with them.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return std::size_t{1} << 48; }

  /// @brief Bytes handed over for sending so far: those of each send, n - 1 times the own bytes of an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

#if defined(KOKKOS_ENABLE_CUDA)
  /// @brief Space of kernels when the caller gives none.
  using execution_space = Kokkos::Cuda;

  /// @brief An instance that launches on stream().
  /// @throws configuration_error when Kokkos is not running
  [[nodiscard]] execution_space execution() const {
    detail::expect_kokkos("nccl");
    return execution_space{stream_};
  }
#endif

  /// @brief Posts a send; `bytes` are read on the stream, between here and wait().
  /// @param bytes  device memory, written by work that is on the stream already
  /// @throws       configuration_error when there is no such peer or the bytes are no device memory; transport_error
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes);

  /// @brief Posts a receive; `bytes` are written on the stream, between here and wait().
  /// @param bytes  device memory
  /// @throws       configuration_error when there is no such peer or the bytes are no device memory; transport_error
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes);

  /// @brief Starts the transfer. Work that is put on the stream from now on runs after it.
  /// @throws transport_error
  void wait(request& posted);

  /// @brief Gives every worker the bytes of all. Workers call together, all with device memory or all with host memory.
  ///
  /// Device memory: enqueued. Host memory: passes through pinned memory, and the host waits for the stream; a failure
  /// leaves `all` alone up to 64 KiB a worker (less above 16 workers: 1 MiB in all).
  /// @shape  mine: b bytes, the same b on every worker; all: size() * b bytes; mine may be the own slot of all
  /// @throws configuration_error when `all` has another size, one is device memory and the other is not, or host memory
  ///         is given while the stream is being captured; transport_error
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all);

  /// @brief Makes every worker's lanes the sum over all workers. Workers call together. Enqueued.
  ///
  /// Integers are added exactly as long as the sums fit. The order in which floats are added is NCCL's.
  /// @shape       lanes: n values in device memory, the same n on every worker; no limit but memory
  /// @throws      configuration_error when the lanes are no device memory; transport_error
  /// @determinism integers: exact. float: the same bits on every worker, since NCCL computes each sum at one place
  template <SumLane Lane>
  requires(!std::same_as<Lane, std::int16_t>) void allreduce_sum(std::span<Lane> lanes) {
    sum(lanes.data(), lanes.size(), lanes.size_bytes(), detail::nccl_type<Lane>());
  }

  /// What allreduce_sum of int16 would return: not void, so that OwnAllreduceSum says that there is none.
  struct no_such_sum {};

  /// @brief NCCL has no 16-bit integer type: throws before any byte moves.
  /// @throws configuration_error
  [[noreturn]] no_such_sum allreduce_sum(std::span<std::int16_t>);

  /// @brief Returns when all that is on the stream has run. What is posted and not waited for is not on it yet.
  /// @throws transport_error when the deadline passed or a transfer failed; configuration_error during capture
  void synchronize();

 private:
  struct transfer {
    std::byte* data;  // a sender's bytes are only read
    std::size_t bytes;
    int peer;
    bool sends;
    std::uint64_t number;
  };

  /// What was enqueued last, for messages: transfers, or a collective.
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

  /// Reads what the communicator is, and allocates.
  void prepare(ncclComm_t communicator);

  /// Connects every worker with every other one. NCCL does so in the group of the first messages, and the host waits
  /// for all peers of that group. With groups of schedules, workers would wait for each other in a ring; this group is
  /// the same on all workers.
  void greet_all();

  [[noreturn]] static void refuse(std::string const& what, std::string const& remedy);

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const;

  // ---- Posting and starting

  request post(bool sends, int peer, std::byte* data, std::size_t bytes);

  bool is_pending(std::uint64_t number) const;

  void start_all();

  /// Starts the first pending transfer of each peer and direction, side by side.
  void start_group();

  ncclResult_t enqueue(std::vector<transfer> const& group);

  /// Moves the first transfers of each peer and direction from pending_ to group_.
  void choose_group();

  /// A message to itself has both ends in one group, of the same size: nobody else will post the other.
  void expect_messages_to_itself();

  void allgather_host(std::span<std::byte const> mine, std::span<std::byte> all);

  void sum(void* lanes, std::size_t count, std::size_t bytes, ncclDataType_t type);

  // ---- Memory

  bool is_device_memory(void const* data);

  /// Host memory is refused even where a device can read it: the host would not know when it is written.
  void expect_device_memory(char const* operation, void const* data, std::size_t count);

  void refuse_capture(char const* operation);

  // ---- Waiting

  /// Waits, up to the deadline, until the stream is idle.
  stream_status status_of_stream() const;

  void await_stream();

  // ---- Failures

  void expect_usable() const;

  /// Throws when something that was enqueued earlier has failed meanwhile.
  void expect_healthy();

  /// Every NCCL status comes here; ncclInProgress is one that the deadline passed.
  void check(ncclResult_t result);

  /// Every CUDA status comes here.
  void check(cudaError_t code, char const* call);

  [[noreturn]] void fail(ncclResult_t result);

  [[noreturn]] void fail_late(std::string const& where);

  /// "send" , "recv" or "send and recv"
  static char const* operation_of(std::vector<transfer> const& group);

  /// What others must do for the last work to end: "rank 1 to send 64 bytes, rank 3 to receive 64 bytes"
  std::string needs() const;

  /// Throws. Before, it makes sure that nothing hangs on the device any more.
  [[noreturn]] void stop(std::string text);

  void abort() noexcept;

  /// A request was destroyed before it was waited for.
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
  std::vector<std::uint64_t> group_of_;  // the last group that took a receive from, a send to each peer
  work last_;
  std::uint64_t bytes_sent_ = 0;
  std::size_t piece_bytes_ = 0;
  detail::pinned_memory pinned_;  // where small values of the host pass through
  detail::device_memory staging_;
  std::string failure_;  // why nothing works any more
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint_for<place_of<nccl>>> make_endpoint(nccl& t);
#endif

}  // namespace GLOBALQ_ABI::transport

#if !defined(GLOBALQ_COMPILED)
#include "nccl-inl.hpp"
#endif
