// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: messages and collectives of transport::nccl.

#include <algorithm>
#include <cstring>

#include "collectives.hpp"
#include "nccl.hpp"

namespace GLOBALQ_ABI::transport {

GLOBALQ_DECL nccl::nccl(ncclComm_t communicator, cudaStream_t stream, options settings)
    : nccl{stream, settings} {
  if (communicator == nullptr)
    refuse("the communicator is null", "give one that ncclCommInitRankConfig made");
  prepare(communicator);
  communicator_.borrow(communicator);
  greet_all();
}

GLOBALQ_DECL nccl::nccl(ncclUniqueId const& id, int rank, int size, cudaStream_t stream, options settings)
    : nccl{stream, settings} {
  if (size < 1 || rank < 0 || rank >= size)
    refuse("there is no rank " + std::to_string(rank) + " of " + std::to_string(size),
           "give a rank from 0 to size - 1");
  rank_ = rank;
  size_ = size;
  owned_ = true;
  last_ = {"connect", "ncclCommInitRankConfig"};
  check(communicator_.connect(id, rank, size));
  last_.call = "ncclCommSplit";
  if (detail::splits_share_abort()) check(communicator_.split(rank));
  prepare(communicator_.get());
  greet_all();
}

GLOBALQ_DECL nccl::~nccl() {
  if (!communicator_.exists()) return;
  detail::on_device const here{device_};
  bool const idle =
      prepared_ && pending_.empty() && (detail::capturing(stream_) || !status_of_stream().late_or_failed());
  if (!idle || (owned_ && communicator_.destroy() != ncclSuccess)) abort();
}

GLOBALQ_DECL nccl::nccl(cudaStream_t stream, options const& settings)
    : stream_{stream}, deadline_{detail::deadline_of(settings, "nccl")}, communicator_{deadline_} {}

GLOBALQ_DECL ncclUniqueId nccl::id_for(endpoint& workers) {
  struct {
    ncclResult_t result;
    ncclUniqueId id;
  } made = {};
  if (workers.rank() == 0) made.result = ncclGetUniqueId(&made.id);
  made = broadcast_value(workers, 0, made);
  if (made.result != ncclSuccess)  // every worker receives the code
    throw transport_error{globalq::detail::worker_message(
        "connect", workers.rank(), workers.size(),
        std::string{"ncclGetUniqueId on rank 0: "} + ncclGetErrorString(made.result),
        detail::nccl_remedy(made.result))};
  return made.id;
}

GLOBALQ_DECL nccl::request nccl::send_async(int peer, std::span<std::byte const> bytes) {
  auto posted = post(true, peer, const_cast<std::byte*>(bytes.data()), bytes.size());
  bytes_sent_ += bytes.size();
  return posted;
}

GLOBALQ_DECL nccl::request nccl::recv_async(int peer, std::span<std::byte> bytes) {
  return post(false, peer, bytes.data(), bytes.size());
}

GLOBALQ_DECL void nccl::wait(request& posted) {
  if (posted.owner_ == nullptr) return;
  expect_usable();
  while (is_pending(posted.number_)) start_group();
  posted.owner_ = nullptr;
}

GLOBALQ_DECL void nccl::allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::expect_room_for_all(*this, mine.size(), all.size());
  expect_usable();
  bool const device = is_device_memory(all.data());
  if (!mine.empty() && device != is_device_memory(mine.data()))
    throw configuration_error{message("allgather", "one of the ranges is device memory and the other is not",
                                      "give both in the same memory")};
  if (!device) refuse_capture("allgather");
  start_all();
  if (mine.empty()) return;
  bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
  last_ = {"allgather", "ncclAllGather"};
  if (!device) return allgather_host(mine, all);
  check(communicator_.call([&] {
    return ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, communicator_.get(), stream_);
  }));
}

GLOBALQ_DECL void nccl::sum(void* values, std::size_t count, std::size_t bytes, ncclDataType_t type) {
  expect_usable();
  expect_device_memory("allreduce_sum", values, count);
  start_all();
  if (count == 0) return;
  if (size_ > 1) bytes_sent_ += bytes;
  last_ = {"allreduce_sum", "ncclAllReduce"};
  check(communicator_.call(
      [&] { return ncclAllReduce(values, values, count, type, ncclSum, communicator_.get(), stream_); }));
}

GLOBALQ_DECL nccl::no_such_sum nccl::allreduce_sum(std::span<std::int16_t>) {
  throw configuration_error{
      message("allreduce_sum", "NCCL cannot add 16-bit integers",
              "use wire::int8 or wire::int32 with schedule::native, or schedule::ring, tree, "
              "scatter_reduce_allgather or allgather, which add on the device themselves")};
}

GLOBALQ_DECL void nccl::synchronize() {
  expect_usable();
  refuse_capture("synchronize");
  await_stream();
}

GLOBALQ_DECL void nccl::prepare(ncclComm_t communicator) {
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
  // allgather() of host memory is for small values; longer ones are exchanged in pieces.
  piece_bytes_ =
      std::clamp<std::size_t>((std::size_t{1} << 20) / static_cast<std::size_t>(size_), 256, 65536);
  std::size_t const bytes = piece_bytes_ * static_cast<std::size_t>(size_);
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  pinned_.reset(static_cast<std::byte*>(memory));
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  staging_.reset(static_cast<std::byte*>(memory));
  // After an abandoned collective, staging holds old bytes; zeros ensure that they are not another allocation's.
  check(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync");
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t beside = nullptr;
  // Without priority NCCL's kernels would start only after the last block of a kernel that was launched before.
  check(cudaStreamCreateWithPriority(&beside, cudaStreamNonBlocking, greatest),
        "cudaStreamCreateWithPriority");
  beside_.reset(beside);
  mark_ = make_event();
  prepared_ = true;
}

GLOBALQ_DECL void nccl::refuse(std::string const& what, std::string const& remedy) {
  throw configuration_error{"globalq: transport::nccl: " + what + "; " + remedy};
}

GLOBALQ_DECL std::string nccl::message(std::string_view operation, std::string_view what,
                                       std::string_view remedy) const {
  return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
}

GLOBALQ_DECL nccl::request nccl::post(bool sends, int peer, std::byte* data, std::size_t bytes) {
  char const* const operation = sends ? "send" : "recv";
  detail::expect_peer(*this, operation, peer);
  expect_usable();
  expect_device_memory(operation, data, bytes);
  pending_.push_back({data, bytes, peer, sends, posted_, bytes < overlap_bytes ? nullptr : record()});
  return request{*this, posted_++};
}

GLOBALQ_DECL bool nccl::is_pending(std::uint64_t number) const {
  auto const at = std::lower_bound(pending_.begin(), pending_.end(), number,
                                   [](transfer const& each, std::uint64_t n) { return each.number < n; });
  return at != pending_.end() && at->number == number;
}

GLOBALQ_DECL void nccl::start_all() {
  expect_healthy();
  while (!pending_.empty()) start_group();
}

GLOBALQ_DECL void nccl::start_group() {
  expect_healthy();
  choose_group();
  last_ = {operation_of(group_), "ncclGroupStart"};
  expect_messages_to_itself();
  detail::on_device const here{device_};  // for the null stream
  cudaStream_t const stream = stream_of_group();
  check(communicator_.call([&] { return enqueue(group_, stream); }));
  if (stream == stream_) return;
  check(cudaEventRecord(mark_.get(), stream), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, mark_.get(), 0), "cudaStreamWaitEvent");
}

GLOBALQ_DECL detail::own_event nccl::make_event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return detail::own_event{made};
}

GLOBALQ_DECL cudaEvent_t nccl::record() {
  detail::on_device const here{device_};
  if (idle_events_.empty()) {
    events_.push_back(make_event());
    idle_events_.reserve(events_.size());  // nothing throws when one is given back
    idle_events_.push_back(events_.back().get());
  }
  check(cudaEventRecord(idle_events_.back(), stream_), "cudaEventRecord");
  auto const recorded = idle_events_.back();
  idle_events_.pop_back();
  return recorded;
}

GLOBALQ_DECL cudaStream_t nccl::stream_of_group() {
  transfer const& last = group_.back();
  bool const overlaps = std::any_of(group_.begin(), group_.end(), [](auto const& t) { return t.ready; });
  if (!overlaps) {
    posted_before_ = posted_;
    return stream_;
  }
  // The work at the last post includes that at the others. The groups of both streams stay in order.
  bool const known = last.ready != nullptr && last.number >= posted_before_;
  cudaEvent_t const ready = known ? last.ready : mark_.get();
  if (!known) check(cudaEventRecord(ready, stream_), "cudaEventRecord");
  check(cudaStreamWaitEvent(beside_.get(), ready, 0), "cudaStreamWaitEvent");
  for (transfer const& each : group_)
    if (each.ready != nullptr) idle_events_.push_back(each.ready);
  return beside_.get();
}

GLOBALQ_DECL void nccl::greet_all() {
  last_ = {"connect", "ncclGroupEnd"};
  std::vector<transfer> greetings;
  for (int peer = 0; peer < size_; ++peer)
    for (bool const sends : {true, false})
      if (peer != rank_) greetings.push_back({staging_.get(), 0, peer, sends, 0, nullptr});
  if (!greetings.empty()) check(communicator_.call([&] { return enqueue(greetings, stream_); }));
}

GLOBALQ_DECL ncclResult_t nccl::enqueue(std::vector<transfer> const& group, cudaStream_t stream) {
  ncclComm_t const comm = communicator_.get();
  auto result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (auto const& each : group) {
    last_.call = each.sends ? "ncclSend" : "ncclRecv";
    result = each.sends ? ncclSend(each.data, each.bytes, ncclUint8, each.peer, comm, stream)
                        : ncclRecv(each.data, each.bytes, ncclUint8, each.peer, comm, stream);
    if (result != ncclSuccess && result != ncclInProgress) break;
  }
  auto const ended = ncclGroupEnd();  // after a failure too: it closes the group of this thread
  if (result != ncclSuccess && result != ncclInProgress) return result;
  last_.call = "ncclGroupEnd";
  return ended;
}

GLOBALQ_DECL void nccl::choose_group() {
  group_.clear();
  group_.reserve(pending_.size());  // nothing throws from here on
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

GLOBALQ_DECL void nccl::expect_messages_to_itself() {
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
                 "use the same size for a send and its receive"));
}

GLOBALQ_DECL void nccl::allgather_host(std::span<std::byte const> mine, std::span<std::byte> all) {
  detail::on_device const here{device_};
  auto const workers = static_cast<std::size_t>(size_);
  for (std::size_t at = 0; at < mine.size(); at += piece_bytes_) {
    std::size_t const bytes = std::min(piece_bytes_, mine.size() - at);
    std::size_t const own = static_cast<std::size_t>(rank_) * bytes;
    std::memcpy(pinned_.get() + own, mine.data() + at, bytes);
    check(cudaMemcpyAsync(staging_.get() + own, pinned_.get() + own, bytes, cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    check(communicator_.call([&] {
      return ncclAllGather(staging_.get() + own, staging_.get(), bytes, ncclUint8, communicator_.get(),
                           stream_);
    }));
    check(cudaMemcpyAsync(pinned_.get(), staging_.get(), workers * bytes, cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    await_stream();
    for (std::size_t from = 0; from < workers; ++from)
      std::memcpy(all.data() + from * mine.size() + at, pinned_.get() + from * bytes, bytes);
  }
}

GLOBALQ_DECL bool nccl::is_device_memory(void const* data) {
  if (data == nullptr) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

GLOBALQ_DECL void nccl::expect_device_memory(char const* operation, void const* data, std::size_t count) {
  if (count != 0 && !is_device_memory(data))
    throw configuration_error{message(operation, "the bytes are not in device memory, which NCCL moves",
                                      "copy them to the device, or use transport::mpi")};
}

GLOBALQ_DECL void nccl::refuse_capture(char const* operation) {
  detail::on_device const here{device_};
  if (detail::capturing(stream_))
    throw configuration_error{
        message(operation, "the host would wait for a stream that is being captured, which never ends",
                "call it before or after the capture; in a graph, exchange values in device memory")};
}

GLOBALQ_DECL nccl::stream_status nccl::status_of_stream() const {
  stream_status seen;
  auto const until = std::chrono::steady_clock::now() + deadline_;
  for (unsigned turn = 0;; ++turn) {
    seen.cuda = detail::state_of(stream_);
    bool const idle = seen.cuda != cudaErrorNotReady;
    if (!idle) seen.cuda = cudaSuccess;
    if (idle || turn % 16 == 15) {
      seen.nccl = communicator_.state();
      seen.late = !idle && std::chrono::steady_clock::now() >= until;
      if (idle || seen.late_or_failed()) break;
    }
    detail::pause(turn);
  }
  return seen;
}

GLOBALQ_DECL void nccl::await_stream() {
  stream_status const seen = status_of_stream();
  check(seen.cuda, "cudaStreamQuery");
  if (seen.nccl != ncclSuccess) fail(seen.nccl);
  if (seen.late) fail_late("the stream, where the last work needs ");
}

GLOBALQ_DECL void nccl::expect_usable() const {
  if (!failure_.empty()) throw transport_error{failure_};
}

GLOBALQ_DECL void nccl::expect_healthy() {
  auto const state = communicator_.state();
  if (state != ncclSuccess) fail(state);
}

GLOBALQ_DECL void nccl::check(ncclResult_t result) {
  if (result == ncclInProgress) fail_late(std::string{last_.call} + ", which needs ");
  if (result != ncclSuccess) fail(result);
}

GLOBALQ_DECL void nccl::check(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  stop(message(
      last_.operation, std::string{call} + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code),
      code == cudaErrorMemoryAllocation
          ? "free device memory, or lower the share that other libraries reserve"
          : "an earlier kernel may have caused it: look for the first error with compute-sanitizer or "
            "CUDA_LAUNCH_BLOCKING=1"));
}

GLOBALQ_DECL void nccl::fail(ncclResult_t result) {
  stop(message(last_.operation,
               std::string{last_.call} + ": " + detail::nccl_text(result, communicator_.get()) +
                   ", waiting for " + needs(),
               detail::nccl_remedy(result)));
}

GLOBALQ_DECL void nccl::fail_late(std::string const& where) {
  stop(message(last_.operation, "waited " + detail::seconds_text(deadline_) + " for " + where + needs(),
               "let every worker make the same calls in the same order, or raise options::deadline"));
}

GLOBALQ_DECL char const* nccl::operation_of(std::vector<transfer> const& group) {
  auto const sends = std::count_if(group.begin(), group.end(), [](auto const& each) { return each.sends; });
  if (sends == 0) return "recv";
  return static_cast<std::size_t>(sends) == group.size() ? "send" : "send and recv";
}

GLOBALQ_DECL std::string nccl::needs() const {
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

GLOBALQ_DECL void nccl::stop(std::string text) {
  failure_ = std::move(text);
  abort();
  throw transport_error{failure_};
}

GLOBALQ_DECL void nccl::abort() noexcept {
  if (!communicator_.exists()) return;
  detail::on_device const here{device_};
  communicator_.abort();
  pending_.clear();
  // NCCL's kernels end soon after the abort; the caller frees its buffers when this returns.
  auto const until = std::chrono::steady_clock::now() + std::chrono::seconds{1};
  auto const runs = [](cudaStream_t stream) { return detail::state_of(stream) == cudaErrorNotReady; };
  for (unsigned turn = 0;
       !detail::capturing(stream_) && (runs(stream_) || (beside_ && runs(beside_.get()))) &&
       std::chrono::steady_clock::now() < until;
       ++turn)
    detail::pause(turn);
}

GLOBALQ_DECL void nccl::give_up() noexcept {
  if (!failure_.empty()) return;
  failure_ = message("request", "a request was destroyed before it was waited for",
                     "wait for each request; make new transports on all workers");
  abort();
}

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint_for<place_of<nccl>>> make_endpoint(nccl& t) {
  return std::make_unique<detail::endpoint_of<nccl, endpoint_for<place_of<nccl>>>>(t);
}
#endif

}  // namespace GLOBALQ_ABI::transport
