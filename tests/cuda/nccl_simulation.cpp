// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: what nccl_simulation.hpp describes. Linked in place of the CUDA runtime and of NCCL.

#include "nccl_simulation.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// ---- Memory

namespace {

std::mutex memory_mutex;
std::map<char const*, std::pair<std::size_t, cudaMemoryType>> blocks;

cudaError_t allocate(void** memory, std::size_t bytes, cudaMemoryType type) {
  *memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::lock_guard const lock{memory_mutex};
  blocks[static_cast<char const*>(*memory)] = {bytes, type};
  return cudaSuccess;
}

cudaError_t release(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  std::lock_guard const lock{memory_mutex};
  if (blocks.erase(static_cast<char const*>(memory)) == 0) return cudaErrorInvalidValue;
  std::free(memory);
  return cudaSuccess;
}

}  // namespace

// ---- Streams: a thread each

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;  // the first one is running
  bool ends = false;
  std::atomic<bool> capturing{false};
  std::thread runner{[this] { run(); }};

  void put(std::function<void()> job) {
    {
      std::lock_guard const lock{mutex};
      work.push_back(std::move(job));
    }
    changed.notify_all();
  }

  bool idle() {
    std::lock_guard const lock{mutex};
    return work.empty();
  }

  void run() {
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [this] { return ends || !work.empty(); });
      if (work.empty()) return;
      lock.unlock();
      work.front()();
      lock.lock();
      work.pop_front();
    }
  }

  ~CUstream_st() {
    {
      std::lock_guard const lock{mutex};
      ends = true;
    }
    changed.notify_all();
    runner.join();
  }
};

namespace {
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t told(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}
}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return told(allocate(memory, bytes, cudaMemoryTypeDevice));
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return told(allocate(memory, bytes, cudaMemoryTypeHost));
}
cudaError_t cudaFree(void* memory) { return told(release(memory)); }
cudaError_t cudaFreeHost(void* memory) { return told(release(memory)); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* at) {
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  std::lock_guard const lock{memory_mutex};
  auto block = blocks.upper_bound(static_cast<char const*>(at));
  if (block == blocks.begin()) return cudaSuccess;
  --block;
  if (static_cast<char const*>(at) < block->first + block->second.first)
    attributes->type = block->second.second;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capturing) return told(cudaErrorStreamCaptureUnsupported);
  return told(stream->idle() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->put([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
char const* cudaGetErrorName(cudaError_t) { return "an error"; }
char const* cudaGetErrorString(cudaError_t) { return "of the simulation"; }

// What nvcc calls to register kernels, of which Kokkos' headers have some.
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
unsigned __cudaPopCallConfiguration(void*, void*, std::size_t*, void*) { return cudaErrorUnknown; }
cudaError_t __cudaGetKernel(void*, void const*) { return cudaErrorUnknown; }
cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorUnknown;
}
}

// ---- NCCL

namespace {

struct transfer {
  void* data;
  std::size_t bytes;
  int peer;
  bool sends;
  bool done = false;
};

struct offer {
  void const* data = nullptr;
  void* result = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  bool sum = false;
};

/// What the ranks of a communicator share. One mutex for all.
struct world {
  explicit world(int ranks) : size{ranks}, offers(static_cast<std::size_t>(ranks)) {}

  std::deque<transfer*>& line(int from, int to, bool sends) { return lines[{from * size + to, sends}]; }

  int const size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, bool>, std::deque<transfer*>> lines;  // transfers under way
  std::vector<offer> offers;                                    // of the collective under way
  int joined = 0, arrived = 0, finalized = 0;
  unsigned collectives = 0;
};

std::mutex worlds_mutex;
std::map<int, std::shared_ptr<world>> worlds;
std::atomic<int> next_id{1};
std::atomic<std::size_t> launched{0}, alive{0};

}  // namespace

struct ncclComm {
  int rank;
  std::shared_ptr<world> all;
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  std::function<bool()> finished;  // of what is in progress, if anything is
};

namespace {

struct queued {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream;
  std::vector<transfer> transfers;
  offer collective;
};
thread_local int depth = 0;
thread_local std::vector<queued> group;

/// Handles given out; kernels hold on to what they use.
std::mutex handles_mutex;
std::map<ncclComm_t, std::shared_ptr<ncclComm>> handles;

std::shared_ptr<ncclComm> object(ncclComm_t comm) {
  std::lock_guard const lock{handles_mutex};
  auto const found = handles.find(comm);
  return found == handles.end() ? nullptr : found->second;
}

std::size_t width(ncclDataType_t type) { return type == ncclInt8 || type == ncclUint8 ? 1 : 4; }

/// Moves what matches at the heads of the lines.
void match(world& all, int from, int to) {
  auto& sends = all.line(from, to, true);
  auto& receives = all.line(from, to, false);
  while (!sends.empty() && !receives.empty() && sends.front()->bytes == receives.front()->bytes) {
    if (sends.front()->bytes != 0)
      std::memmove(receives.front()->data, sends.front()->data, sends.front()->bytes);
    sends.front()->done = receives.front()->done = true;
    sends.pop_front();
    receives.pop_front();
  }
}

void run_transfers(ncclComm& comm, std::vector<transfer> transfers) {
  world& all = *comm.all;
  std::unique_lock lock{all.mutex};
  for (auto& each : transfers) {
    int const from = each.sends ? comm.rank : each.peer, to = each.sends ? each.peer : comm.rank;
    all.line(from, to, each.sends).push_back(&each);
    match(all, from, to);
  }
  all.changed.notify_all();
  all.changed.wait(lock, [&] {
    for (auto const& each : transfers)
      if (!each.done) return comm.aborted.load();
    return true;
  });
  for (auto& each : transfers) {
    int const from = each.sends ? comm.rank : each.peer, to = each.sends ? each.peer : comm.rank;
    std::erase(all.line(from, to, each.sends), &each);
  }
}

template <class T>
void add(void* result, void const* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<T*>(result)[i] = static_cast<T>(static_cast<T*>(result)[i] + static_cast<T const*>(data)[i]);
}

/// The last rank to arrive does the work of all.
void run_collective(ncclComm& comm, offer const& mine) {
  world& all = *comm.all;
  std::unique_lock lock{all.mutex};
  all.offers[static_cast<std::size_t>(comm.rank)] = mine;
  unsigned const number = all.collectives;
  if (++all.arrived < all.size) {
    all.changed.wait(lock, [&] { return all.collectives != number || comm.aborted.load(); });
    if (all.collectives == number) --all.arrived;
    return;
  }
  std::size_t const bytes = mine.count * width(mine.type);
  std::vector<char> result(mine.sum ? bytes : bytes * all.offers.size());
  for (std::size_t rank = 0; rank < all.offers.size(); ++rank) {
    void const* const data = all.offers[rank].data;
    if (!mine.sum)
      std::memcpy(result.data() + rank * bytes, data, bytes);
    else if (mine.type == ncclInt8)
      add<signed char>(result.data(), data, mine.count);
    else if (mine.type == ncclInt32)
      add<int>(result.data(), data, mine.count);
    else
      add<float>(result.data(), data, mine.count);
  }
  for (auto const& each : all.offers) std::memcpy(each.result, result.data(), result.size());
  all.arrived = 0;
  ++all.collectives;
  all.changed.notify_all();
}

/// What is enqueued when the communicator is asked for the second time how it goes.
ncclResult_t begin(ncclComm& comm, std::function<bool()> finished) {
  comm.finished = std::move(finished);
  comm.state = ncclInProgress;
  return ncclInProgress;
}

ncclResult_t launch(std::vector<queued> jobs) {
  for (auto& job : jobs) {
    ++launched;
    auto const comm = job.comm;
    auto left = std::make_shared<int>(2);
    begin(*comm, [job = std::move(job), left] {
      if (--*left > 0) return false;
      job.stream->put([job] {
        if (job.transfers.empty())
          run_collective(*job.comm, job.collective);
        else
          run_transfers(*job.comm, job.transfers);
      });
      return true;
    });
  }
  return jobs.empty() ? ncclSuccess : ncclInProgress;
}

queued& place(std::shared_ptr<ncclComm> const& comm, cudaStream_t stream) {
  for (auto& each : group)
    if (each.comm == comm && each.stream == stream) return each;
  return group.emplace_back(queued{comm, stream, {}, {}});
}

ncclResult_t transfer_of(ncclComm_t handle, transfer const& what, cudaStream_t stream) {
  auto const comm = object(handle);
  if (comm == nullptr || depth == 0) return ncclInvalidArgument;  // the transport always opens a group
  if (comm->state != ncclSuccess) return ncclInvalidArgument;
  place(comm, stream).transfers.push_back(what);
  return ncclSuccess;
}

ncclResult_t collective_of(ncclComm_t handle, offer const& what, cudaStream_t stream) {
  auto const comm = object(handle);
  if (comm == nullptr || depth != 0 || comm->state != ncclSuccess) return ncclInvalidArgument;
  return launch({queued{comm, stream, {}, what}});
}

void forget(ncclComm_t handle) {
  std::lock_guard const lock{handles_mutex};
  alive -= handles.erase(handle);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  int const number = next_id++;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  int number = 0;
  std::memcpy(&number, &id, sizeof number);
  auto const comm = std::make_shared<ncclComm>();
  comm->rank = rank;
  {
    std::lock_guard const lock{worlds_mutex};
    auto& all = worlds[number];
    if (all == nullptr) all = std::make_shared<world>(size);
    comm->all = all;
    if (++all->joined == size) worlds.erase(number);
  }
  {
    std::lock_guard const lock{handles_mutex};
    handles[comm.get()] = comm;
  }
  ++alive;
  *handle = comm.get();
  return begin(*comm, [all = comm->all] {
    std::lock_guard const lock{worlds_mutex};
    return all->joined == all->size;
  });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (object(comm) == nullptr || comm->state == ncclInProgress) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->all->size;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t, int* device) {
  *device = 0;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  auto const comm = object(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  if (comm->state == ncclInProgress && comm->finished()) {
    comm->finished = nullptr;
    comm->state = ncclSuccess;
  }
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  auto const comm = object(handle);
  if (comm == nullptr || comm->state != ncclSuccess) return ncclInvalidArgument;
  {
    std::lock_guard const lock{comm->all->mutex};
    ++comm->all->finalized;
  }
  return begin(*comm, [all = comm->all] {
    std::lock_guard const lock{all->mutex};
    return all->finalized >= all->size;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (object(handle) == nullptr) return ncclInvalidArgument;
  forget(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  auto const comm = object(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  {
    std::lock_guard const lock{comm->all->mutex};
    comm->aborted = true;
  }
  comm->all->changed.notify_all();
  comm->finished = nullptr;
  forget(handle);
  return ncclSuccess;
}

char const* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "another error";
}
char const* ncclGetLastError(ncclComm_t) { return "told by the simulation"; }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  return launch(std::exchange(group, {}));
}

ncclResult_t ncclSend(void const* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer_of(comm, {const_cast<void*>(data), count * width(type), peer, true}, stream);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer_of(comm, {data, count * width(type), peer, false}, stream);
}
ncclResult_t ncclAllGather(void const* data, void* result, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective_of(comm, {data, result, count, type, false}, stream);
}
ncclResult_t ncclAllReduce(void const* data, void* result, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return collective_of(comm, {data, result, count, type, true}, stream);
}
}

namespace simulation {

std::size_t launches() { return launched; }
std::size_t communicators() { return alive; }
void break_communicator(ncclComm_t communicator, ncclResult_t error) { communicator->state = error; }
void set_capturing(cudaStream_t stream, bool capturing) { stream->capturing = capturing; }

}  // namespace simulation
