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
#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "globalq/core/error.hpp"
#include "globalq/transport/collectives.hpp"
#include "globalq/transport/concept.hpp"
#include "globalq/transport/detail/nccl_runtime.hpp"

namespace GLOBALQ_ABI::transport {

/// @brief One rank of an NCCL communicator. Messages are device memory; everything runs on the caller's stream.
///
/// A wait is an order on the stream, not a pause of the host: `wait(request)` returns when the transfer is enqueued,
/// and what is put on the stream afterwards runs after it. Only allgather() of host memory and synchronize() wait on
/// the host. So everything else can be captured in a CUDA graph, once it has run outside (NCCL connects peers at the
/// first message); destroy the graph before the transport.
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
/// Failures: every status is checked, NCCL's asynchronous errors too, before work is enqueued and while the host
/// waits. The deadline bounds each wait of the host, also that for connections (with a communicator that does not
/// block, as the ones made here). After a failure, or when a request is destroyed before it was waited for, the
/// communicator is aborted: its kernels end, and no message touches memory any more; every later call throws the first
/// error again. Other workers hear of it by NCCL or by their own deadlines. cudaStreamSynchronize knows no deadline:
/// synchronize() does.
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

  /// @brief Uses a communicator of the caller's.
  ///
  /// The communicator stays the caller's, who uses it for nothing else meanwhile and destroys it afterwards, unless the
  /// transport failed: communicator() is then null, and the communicator aborted and freed. One that blocks
  /// (ncclCommInitRank) may hang in NCCL, beyond any deadline, where a peer never connects; one with
  /// ncclConfig_t::blocking = 0 does not.
  /// @param communicator  initialised; all of its ranks make a transport
  /// @param stream        of the communicator's device; outlives the transport
  /// @param settings      the deadline of each wait of the host; above 0, and counted as at most a year
  /// @throws              configuration_error; transport_error
  nccl(ncclComm_t communicator, cudaStream_t stream, options settings = {}) : nccl{stream, settings} {
    if (communicator == nullptr)
      refuse("the communicator is null", "give one that ncclCommInitRankConfig made");
    prepare(communicator);
    communicator_ = communicator;
  }

  /// @brief Makes a communicator on the current device, from an id that rank 0 got by ncclGetUniqueId and gave to all.
  ///        Workers call together.
  /// @throws configuration_error; transport_error, also when not all workers call before the deadline
  nccl(ncclUniqueId const& id, int rank, int size, cudaStream_t stream, options settings = {})
      : nccl{stream, settings} {
    if (size < 1 || rank < 0 || rank >= size)
      refuse("there is no rank " + std::to_string(rank) + " of " + std::to_string(size),
             "give a rank from 0 to size - 1");
    rank_ = rank;
    size_ = size;
    owned_ = true;
    last_ = {"connect", "ncclCommInitRankConfig"};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&communicator_, size, id, rank, &config));
    prepare(communicator_);
  }

  /// @brief Makes a communicator among the workers of another transport, such as mpi, which carries the id. Workers
  ///        call together, each with its device current.
  /// @throws configuration_error; transport_error
  template <Transport Host>
  requires(!std::same_as<Host, nccl>) nccl(Host& workers, cudaStream_t stream, options settings = {})
      : nccl{id_for(workers), workers.rank(), workers.size(), stream, settings} {}

  nccl(nccl const&) = delete;
  nccl& operator=(nccl const&) = delete;

  /// @brief Waits for the stream, up to the deadline, unless it is being captured, then lets go of the communicator.
  ///        One that was made here is destroyed; its workers meet for that, up to the deadline.
  ~nccl() {
    if (communicator_ == nullptr) return;
    detail::on_device const here{device_};
    bool const idle = prepared_ && pending_.empty() && (capturing() || !stream_outcome().late_or_failed());
    if (!idle) {
      abort();
    } else if (owned_) {
      if (settle(ncclCommFinalize(communicator_)) == ncclSuccess)
        ncclCommDestroy(communicator_);
      else
        abort();
    }
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "nccl"; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  /// @brief The communicator; null once the transport failed.
  [[nodiscard]] ncclComm_t communicator() const noexcept { return communicator_; }

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
    if (!Kokkos::is_initialized() || Kokkos::is_finalized())
      refuse("Kokkos is not running", "keep a Kokkos::ScopeGuard in main() while globalq is used");
    return execution_space{stream_};
  }
#endif

  /// @brief Posts a send; `bytes` are read on the stream, between here and wait().
  /// @param bytes  device memory, written by work that is on the stream already
  /// @throws       configuration_error when there is no such peer or the bytes are no device memory; transport_error
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes) {
    auto posted = post(true, peer, const_cast<std::byte*>(bytes.data()), bytes.size());
    bytes_sent_ += bytes.size();
    return posted;
  }

  /// @brief Posts a receive; `bytes` are written on the stream, between here and wait().
  /// @param bytes  device memory
  /// @throws       configuration_error when there is no such peer or the bytes are no device memory; transport_error
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes) {
    return post(false, peer, bytes.data(), bytes.size());
  }

  /// @brief Starts the transfer. Work that is put on the stream from now on runs after it.
  /// @throws transport_error
  void wait(request& posted) {
    if (posted.owner_ == nullptr) return;
    expect_usable();
    while (is_pending(posted.number_)) start_group();
    posted.owner_ = nullptr;
  }

  /// @brief Gives every worker the bytes of all. Workers call together, all with device memory or all with host memory.
  ///
  /// Device memory: enqueued. Host memory: passes through pinned memory, and the host waits for the stream; a failure
  /// leaves `all` alone up to 64 KiB a worker (less above 16 workers: 1 MiB in all).
  /// @shape  mine: b bytes, the same b on every worker; all: size() * b bytes; mine may be the own slot of all
  /// @throws configuration_error when `all` has another size, one is device memory and the other is not, or host memory
  ///         is given while the stream is being captured; transport_error
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    detail::expect_room_for_all(*this, mine.size(), all.size());
    expect_usable();
    bool const device = is_device_memory(all.data());
    if (!mine.empty() && device != is_device_memory(mine.data()))
      throw configuration_error{message("allgather",
                                        "one of the ranges is device memory and the other is not",
                                        "give both in the same memory")};
    if (!device) refuse_capture("allgather");
    start_all();
    if (mine.empty()) return;
    bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
    last_ = {"allgather", "ncclAllGather"};
    if (!device) return allgather_host(mine, all);
    check(ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, communicator_, stream_));
  }

  /// @brief Makes every worker's lanes the sum over all workers. Workers call together. Enqueued.
  ///
  /// Integers are added exactly as long as the sums fit. The order in which floats are added is NCCL's.
  /// @shape       lanes: n values in device memory, the same n on every worker; no limit but memory
  /// @throws      configuration_error when the lanes are no device memory; transport_error
  /// @determinism integers: exact. float: the same bits on every worker, since NCCL computes each sum at one place
  template <SumLane Lane>
  requires(!std::same_as<Lane, std::int16_t>) void allreduce_sum(std::span<Lane> lanes) {
    expect_usable();
    expect_device_memory("allreduce_sum", lanes.data(), lanes.size());
    start_all();
    if (lanes.empty()) return;
    if (size_ > 1) bytes_sent_ += lanes.size_bytes();
    last_ = {"allreduce_sum", "ncclAllReduce"};
    check(ncclAllReduce(lanes.data(), lanes.data(), lanes.size(), detail::nccl_type<Lane>(), ncclSum,
                        communicator_, stream_));
  }

  /// What allreduce_sum of int16 would return: not void, so that OwnAllreduceSum says that there is none.
  struct no_such_sum {};

  /// @brief NCCL has no 16-bit integer type: throws before any byte moves.
  /// @throws configuration_error
  [[noreturn]] no_such_sum allreduce_sum(std::span<std::int16_t>) {
    throw configuration_error{
        message("allreduce_sum", "NCCL cannot add 16-bit integers",
                "use wire::int8 or wire::int32 with schedule::native, or schedule::ring, tree, "
                "scatter_reduce_allgather or allgather, which add on the device themselves")};
  }

  /// @brief Returns when all that is on the stream has run. What is posted and not waited for is not on it yet.
  /// @throws transport_error when the deadline passed or a transfer failed; configuration_error during capture
  void synchronize() {
    expect_usable();
    refuse_capture("synchronize");
    await_stream();
  }

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
  struct outcome {
    cudaError_t cuda = cudaSuccess;
    ncclResult_t nccl = ncclSuccess;
    bool late = false;
    [[nodiscard]] bool late_or_failed() const { return late || cuda != cudaSuccess || nccl != ncclSuccess; }
  };

  nccl(cudaStream_t stream, options const& settings)
      : stream_{stream},
        deadline_{std::min<std::chrono::nanoseconds>(settings.deadline, std::chrono::hours{24 * 365})} {
    if (settings.deadline <= std::chrono::nanoseconds::zero())
      refuse("the deadline is not above 0 and would end every wait at once", "give a longer time");
  }

  template <class Host>
  static ncclUniqueId id_for(Host& workers) {
    struct {
      ncclResult_t result;
      ncclUniqueId id;
    } made = {};
    if (workers.rank() == 0) made.result = ncclGetUniqueId(&made.id);
    made = broadcast_value(workers, 0, made);
    if (made.result != ncclSuccess)  // every worker hears of it
      throw transport_error{globalq::detail::worker_message(
          "connect", workers.rank(), workers.size(),
          std::string{"ncclGetUniqueId on rank 0: "} + ncclGetErrorString(made.result),
          detail::nccl_remedy(made.result))};
    return made.id;
  }

  /// Reads what the communicator is, and allocates.
  void prepare(ncclComm_t communicator) {
    last_ = {"connect", "ncclCommUserRank"};
    check(ncclCommUserRank(communicator, &rank_));
    check(ncclCommCount(communicator, &size_));
    check(ncclCommCuDevice(communicator, &device_));
    detail::on_device const here{device_};
#if CUDART_VERSION >= 12080
    int device = device_;
    check(cudaStreamGetDevice(stream_, &device), "cudaStreamGetDevice");
    if (device != device_)
      refuse("the stream is one of device " + std::to_string(device) + ", the communicator of device " +
                 std::to_string(device_),
             "make both while the same device is current");
#endif
    group_of_.assign(2 * static_cast<std::size_t>(size_), 0);
    // Small values are what allgather() of host memory is for; longer ones pass in pieces.
    piece_bytes_ =
        std::clamp<std::size_t>((std::size_t{1} << 20) / static_cast<std::size_t>(size_), 256, 65536);
    std::size_t const bytes = piece_bytes_ * static_cast<std::size_t>(size_);
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    pinned_.reset(static_cast<std::byte*>(memory));
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    staging_.reset(static_cast<std::byte*>(memory));
    prepared_ = true;
  }

  [[noreturn]] static void refuse(std::string const& what, std::string const& remedy) {
    throw configuration_error{"globalq: transport::nccl: " + what + "; " + remedy};
  }

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const {
    return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
  }

  // ---- Posting and starting

  request post(bool sends, int peer, std::byte* data, std::size_t bytes) {
    char const* const operation = sends ? "send" : "recv";
    detail::expect_peer(*this, operation, peer);
    expect_usable();
    expect_device_memory(operation, data, bytes);
    pending_.push_back({data, bytes, peer, sends, posted_});
    return request{*this, posted_++};
  }

  bool is_pending(std::uint64_t number) const {
    auto const at = std::lower_bound(pending_.begin(), pending_.end(), number,
                                     [](transfer const& each, std::uint64_t n) { return each.number < n; });
    return at != pending_.end() && at->number == number;
  }

  void start_all() {
    expect_healthy();
    while (!pending_.empty()) start_group();
  }

  /// Starts the first pending transfer of each peer and direction, side by side.
  void start_group() {
    expect_healthy();
    choose_group();
    last_ = {operation_of(group_), "ncclGroupStart"};
    expect_messages_to_itself();
    check(ncclGroupStart());
    auto result = ncclSuccess;
    for (auto const& each : group_) {
      last_.call = each.sends ? "ncclSend" : "ncclRecv";
      result = each.sends ? ncclSend(each.data, each.bytes, ncclUint8, each.peer, communicator_, stream_)
                          : ncclRecv(each.data, each.bytes, ncclUint8, each.peer, communicator_, stream_);
      if (result != ncclSuccess && result != ncclInProgress) break;
    }
    auto const ended = ncclGroupEnd();  // after a failure too: it closes the group of this thread
    if (result != ncclSuccess && result != ncclInProgress) fail(result);
    last_.call = "ncclGroupEnd";
    check(ended);
  }

  /// Moves the first transfers of each peer and direction from pending_ to group_.
  void choose_group() {
    group_.clear();
    group_.reserve(pending_.size());  // from here on nothing throws
    ++groups_;
    std::size_t kept = 0;
    for (auto const& each : pending_) {
      auto& latest = group_of_[2 * static_cast<std::size_t>(each.peer) + (each.sends ? 1 : 0)];
      if (latest == groups_)
        pending_[kept++] = each;
      else
        group_.push_back(each);
      latest = groups_;
    }
    pending_.resize(kept);
  }

  /// A message to itself has both ends in one group, of the same size: nobody else will post the other.
  void expect_messages_to_itself() {
    transfer const* out = nullptr;
    transfer const* in = nullptr;
    for (auto const& each : group_)
      if (each.peer == rank_) (each.sends ? out : in) = &each;
    if ((out == nullptr) != (in == nullptr))
      stop(message(last_.operation, "a message of this worker to itself lacks its send or its receive",
                   "post both before the first wait"));
    if (out != nullptr && out->bytes != in->bytes)
      stop(message("recv",
                   "expected " + std::to_string(in->bytes) + " bytes from rank " + std::to_string(rank_) +
                       ", which sent " + std::to_string(out->bytes),
                   "a send and its receive name the same size"));
  }

  void allgather_host(std::span<std::byte const> mine, std::span<std::byte> all) {
    detail::on_device const here{device_};
    auto const workers = static_cast<std::size_t>(size_);
    for (std::size_t at = 0; at < mine.size(); at += piece_bytes_) {
      std::size_t const bytes = std::min(piece_bytes_, mine.size() - at);
      std::size_t const own = static_cast<std::size_t>(rank_) * bytes;
      std::memcpy(pinned_.get() + own, mine.data() + at, bytes);
      check(
          cudaMemcpyAsync(staging_.get() + own, pinned_.get() + own, bytes, cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
      check(ncclAllGather(staging_.get() + own, staging_.get(), bytes, ncclUint8, communicator_, stream_));
      check(cudaMemcpyAsync(pinned_.get(), staging_.get(), workers * bytes, cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
      await_stream();
      for (std::size_t from = 0; from < workers; ++from)
        std::memcpy(all.data() + from * mine.size() + at, pinned_.get() + from * bytes, bytes);
    }
  }

  // ---- Memory

  bool is_device_memory(void const* data) {
    if (data == nullptr) return false;
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  /// Host memory is refused even where a device can read it: the host would not know when it is written.
  void expect_device_memory(char const* operation, void const* data, std::size_t count) {
    if (count != 0 && !is_device_memory(data))
      throw configuration_error{message(operation, "the bytes are not in device memory, which NCCL moves",
                                        "copy them to the device, or use transport::mpi")};
  }

  bool capturing() const {
    auto status = cudaStreamCaptureStatusNone;
    auto const code = cudaStreamIsCapturing(stream_, &status);
    if (code != cudaErrorStreamCaptureImplicit) return status != cudaStreamCaptureStatusNone;
    cudaGetLastError();
    return true;  // the legacy default stream, while another one is being captured
  }

  void refuse_capture(char const* operation) {
    detail::on_device const here{device_};
    if (capturing())
      throw configuration_error{
          message(operation, "the host would wait for a stream that is being captured, which never ends",
                  "call it before or after the capture; in a graph, exchange values in device memory")};
  }

  // ---- Waiting

  /// Waits, up to the deadline, until the communicator has done what it was asked to do.
  ncclResult_t settle(ncclResult_t result) const {
    if (result != ncclInProgress) return result;
    auto const until = std::chrono::steady_clock::now() + deadline_;
    for (unsigned turn = 0; result == ncclInProgress; ++turn) {
      auto const code = ncclCommGetAsyncError(communicator_, &result);
      if (code != ncclSuccess) return code;
      if (turn % 16 == 15 && std::chrono::steady_clock::now() >= until) break;
      detail::pause(turn);
    }
    return result;
  }

  /// Waits, up to the deadline, until the stream is idle.
  outcome stream_outcome() const {
    outcome seen;
    auto const until = std::chrono::steady_clock::now() + deadline_;
    for (unsigned turn = 0;; ++turn) {
      seen.cuda = cudaStreamQuery(stream_);
      bool const idle = seen.cuda != cudaErrorNotReady;
      if (!idle) seen.cuda = cudaSuccess;
      if (idle || turn % 16 == 15) {
        auto const code = ncclCommGetAsyncError(communicator_, &seen.nccl);
        if (code != ncclSuccess) seen.nccl = code;
        seen.late = !idle && std::chrono::steady_clock::now() >= until;
        if (idle || seen.late_or_failed()) break;
      }
      detail::pause(turn);
    }
    if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();  // it was no error
    return seen;
  }

  void await_stream() {
    outcome const seen = stream_outcome();
    check(seen.cuda, "cudaStreamQuery");
    if (seen.nccl != ncclSuccess) fail(seen.nccl);
    if (seen.late) fail_late("the stream, where the last work needs ");
  }

  // ---- Failures

  void expect_usable() const {
    if (!failure_.empty()) throw transport_error{failure_};
  }

  /// Throws when something that was enqueued earlier has failed meanwhile.
  void expect_healthy() {
    auto state = ncclSuccess;
    auto const code = ncclCommGetAsyncError(communicator_, &state);
    if (code != ncclSuccess || state != ncclSuccess) fail(code != ncclSuccess ? code : state);
  }

  /// Every NCCL status comes here.
  void check(ncclResult_t result) {
    result = settle(result);
    if (result == ncclInProgress) fail_late(std::string{last_.call} + ", which needs ");
    if (result != ncclSuccess) fail(result);
  }

  /// Every CUDA status comes here.
  void check(cudaError_t code, char const* call) {
    if (code == cudaSuccess) return;
    stop(message(
        last_.operation, std::string{call} + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code),
        code == cudaErrorMemoryAllocation
            ? "free device memory, or lower the share that other libraries reserve"
            : "an earlier kernel may have caused it: look for the first error with compute-sanitizer or "
              "CUDA_LAUNCH_BLOCKING=1"));
  }

  [[noreturn]] void fail(ncclResult_t result) {
    stop(message(last_.operation,
                 std::string{last_.call} + ": " + detail::nccl_text(result, communicator_) +
                     ", waiting for " + needs(),
                 detail::nccl_remedy(result)));
  }

  [[noreturn]] void fail_late(std::string const& where) {
    stop(message(last_.operation, "waited " + detail::seconds_text(deadline_) + " for " + where + needs(),
                 "let every worker make the same calls in the same order, or raise options::deadline"));
  }

  /// "send" , "recv" or "send and recv"
  static char const* operation_of(std::vector<transfer> const& group) {
    auto const sends = std::count_if(group.begin(), group.end(), [](auto const& each) { return each.sends; });
    if (sends == 0) return "recv";
    return static_cast<std::size_t>(sends) == group.size() ? "send" : "send and recv";
  }

  /// What others must do for the last work to end: "rank 1 to send 64 bytes, rank 3 to receive 64 bytes"
  std::string needs() const {
    if (group_.empty() || std::string_view{last_.operation} != operation_of(group_))
      return "all workers to take part";
    constexpr std::size_t most = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, group_.size()); ++i)
      text += (i == 0 ? "rank " : ", rank ") + std::to_string(group_[i].peer) +
              (group_[i].sends ? " to receive " : " to send ") + std::to_string(group_[i].bytes) + " bytes";
    if (group_.size() > most) text += " and " + std::to_string(group_.size() - most) + " more";
    return text;
  }

  /// Throws. Before, it makes sure that nothing hangs on the device any more.
  [[noreturn]] void stop(std::string text) {
    failure_ = std::move(text);
    abort();
    throw transport_error{failure_};
  }

  void abort() noexcept {
    if (communicator_ == nullptr) return;
    detail::on_device const here{device_};
    ncclCommAbort(
        std::exchange(communicator_, nullptr));  // its status adds nothing to the error that led here
    pending_.clear();
    // Kernels of NCCL end soon after they see the abort; a caller frees its buffers when this returns.
    auto const until = std::chrono::steady_clock::now() + std::chrono::seconds{1};
    for (unsigned turn = 0; !capturing() && cudaStreamQuery(stream_) == cudaErrorNotReady &&
                            std::chrono::steady_clock::now() < until;
         ++turn)
      detail::pause(turn);
    if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();  // it was no error
  }

  /// A request was destroyed before it was waited for.
  void give_up() noexcept {
    if (!failure_.empty()) return;
    failure_ = message("request", "a request was destroyed before it was waited for",
                       "wait for each request; make new transports on all workers");
    abort();
  }

  int rank_ = 0;
  int size_ = 1;
  int device_ = 0;
  cudaStream_t const stream_;
  std::chrono::nanoseconds const deadline_;
  ncclComm_t communicator_ = nullptr;
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

}  // namespace GLOBALQ_ABI::transport
