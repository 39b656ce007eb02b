// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libnccl.so.2 for tests, over the emulated runtime: the ranks are threads of one process, on one device or on several.
///
/// It is as strict as NCCL's documentation allows: a group is one piece of a stream's work, which ends when all of its transfers
/// have, and a send ends only when it was received; sizes that differ never match; a communicator that does not block enqueues
/// a group only once it was asked twice how it goes. The first transfer between two ranks and the first collective connect, which
/// waits on the host for the other ranks: in the call where a communicator blocks. Aborting a communicator while a call
/// blocks on it is a fault: NCCL frees what the call uses.

#include "device.hpp"

#include <cuda_emulator/nccl.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <tuple>
#include <utility>

namespace {

using emulator::work;

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

/// What the ranks of a communicator share.
struct world {
  explicit world(int ranks) : size{ranks}, offers(static_cast<std::size_t>(ranks)) {}

  std::deque<transfer*>& line(int from, int to, bool sends) { return lines[{from * size + to, sends}]; }
  bool all_joined() const { return joined == size; }

  int const size;
  std::map<std::pair<int, bool>, std::deque<transfer*>> lines;  // transfers under way
  std::vector<offer> offers;                                    // of the collective under way
  std::set<std::tuple<int, int, bool>> connecting;  // who has come to connect: from, to, as the sender
  std::set<int> connecting_collectives;             // the ranks that have
  std::vector<std::shared_ptr<world>> splits;
  int joined = 0;
  int arrived = 0;
  int finalized = 0;
  unsigned collectives = 0;
};

/// Of all that follows. Work of streams takes it while the runtime's lock is held, so nothing here calls CUDA under it.
std::mutex mutex;
std::condition_variable changed;
std::map<int, std::shared_ptr<world>> worlds;
int next_id = 1;
std::size_t launched = 0;
std::size_t launched_without_blocking = 0;

}  // namespace

struct ncclComm {
  int rank = 0;
  int device = 0;
  bool blocking = false;
  bool shares = false;  ///< With those split off it.
  std::shared_ptr<world> all{};
  ncclResult_t state = ncclSuccess;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  int blocked = 0;  ///< Calls that are in it now.
  std::size_t splits = 0;
  std::function<bool()> finished{};  ///< Of what is in progress, if anything is; called without the lock.
};

namespace {

using communicator = std::shared_ptr<ncclComm>;

/// Handles given out; work holds on to what it uses.
std::map<ncclComm_t, communicator> handles;

struct queued {
  communicator comm;
  cudaStream_t stream;
  std::vector<transfer> transfers;
  offer collective;
};
thread_local int depth = 0;
thread_local std::vector<queued> group;

communicator find(ncclComm_t comm) {
  std::lock_guard const lock{mutex};
  auto const found = handles.find(comm);
  return found == handles.end() ? nullptr : found->second;
}

std::size_t width(ncclDataType_t type) { return type == ncclInt8 || type == ncclUint8 ? 1 : 4; }

/// Moves what matches at the heads of the lines.
void match(world& all, int from, int to) {
  auto& sends = all.line(from, to, true);
  auto& receives = all.line(from, to, false);
  while (!sends.empty() && !receives.empty() && sends.front()->bytes == receives.front()->bytes) {
    cudaEmulatedCopy(receives.front()->data, sends.front()->data, sends.front()->bytes);
    sends.front()->done = receives.front()->done = true;
    sends.pop_front();
    receives.pop_front();
  }
}

work make_transfers(communicator const& comm, std::vector<transfer> const& transfers) {
  return [comm, posted = false, all = std::make_shared<std::vector<transfer>>(transfers)]() mutable {
    std::lock_guard const lock{mutex};
    world& with = *comm->all;
    bool done = true;
    for (auto& each : *all) {
      int const from = each.sends ? comm->rank : each.peer, to = each.sends ? each.peer : comm->rank;
      auto& line = with.line(from, to, each.sends);
      if (*comm->aborted) {
        std::erase(line, &each);
      } else if (!posted) {
        line.push_back(&each);
        match(with, from, to);
      }
    }
    posted = true;
    for (auto const& each : *all) done = done && each.done;
    return done || *comm->aborted;
  };
}

template <class T>
void add(std::vector<std::byte>& result, std::vector<std::byte> const& data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, result.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, data.data() + i * sizeof(T), sizeof(T));
    a = static_cast<T>(a + b);
    std::memcpy(result.data() + i * sizeof(T), &a, sizeof(T));
  }
}

/// The last rank to arrive does the work of all.
void run_collective(world& all, offer const& like) {
  std::size_t const bytes = like.count * width(like.type);
  if (!like.sum) {
    for (auto const& to : all.offers) {
      for (std::size_t rank = 0; rank < all.offers.size(); ++rank)
        cudaEmulatedCopy(static_cast<std::byte*>(to.result) + rank * bytes, all.offers[rank].data, bytes);
    }
    return;
  }
  std::vector<std::byte> result(bytes), data(bytes);
  for (auto const& from : all.offers) {
    cudaEmulatedCopy(data.data(), from.data, bytes);
    if (like.type == ncclInt8)
      add<signed char>(result, data, like.count);
    else if (like.type == ncclInt32)
      add<int>(result, data, like.count);
    else
      add<float>(result, data, like.count);
  }
  for (auto const& to : all.offers) cudaEmulatedCopy(to.result, result.data(), bytes);
}

work make_collective(communicator const& comm, offer const& mine) {
  return [comm, mine, arrived = false, number = 0U]() mutable {
    std::lock_guard const lock{mutex};
    world& all = *comm->all;
    if (!arrived) {
      if (*comm->aborted) return true;
      all.offers[static_cast<std::size_t>(comm->rank)] = mine;
      number = all.collectives;
      arrived = true;
      if (++all.arrived == all.size) {
        run_collective(all, mine);
        all.arrived = 0;
        ++all.collectives;
      }
    }
    if (all.collectives != number) return true;
    if (*comm->aborted) --all.arrived;
    return *comm->aborted;
  };
}

/// Waits on the host, as a communicator does that blocks.
template <class Condition>
ncclResult_t block(std::unique_lock<std::mutex>& lock, ncclComm& comm, Condition const& condition) {
  ++comm.blocked;
  changed.wait(lock, [&] { return *comm.aborted || condition(); });
  --comm.blocked;
  return *comm.aborted ? ncclInternalError : ncclSuccess;
}

/// Takes a communicator from its user.
ncclResult_t release(ncclComm_t handle) {
  auto const found = handles.find(handle);
  if (found == handles.end()) return ncclInvalidArgument;
  if (found->second->blocked > 0) {
    std::fputs("emulated NCCL: a communicator was freed while a call blocks on it\n", stderr);
    std::abort();
  }
  found->second->finished = nullptr;
  handles.erase(found);
  return ncclSuccess;
}

/// Comes to all connections that a group needs.
void connect(queued const& job) {
  int const self = job.comm->rank;
  for (auto const& each : job.transfers)
    job.comm->all->connecting.emplace(each.sends ? self : each.peer, each.sends ? each.peer : self,
                                      each.sends);
  if (job.transfers.empty()) job.comm->all->connecting_collectives.insert(self);
  changed.notify_all();
}

bool connected(queued const& job) {
  world const& all = *job.comm->all;
  int const self = job.comm->rank;
  for (auto const& each : job.transfers)
    if (!all.connecting.contains({each.sends ? self : each.peer, each.sends ? each.peer : self, !each.sends}))
      return false;
  return !job.transfers.empty() || all.connecting_collectives.size() == all.offers.size();
}

void begin(ncclComm& comm, std::function<bool()> finished) {
  comm.finished = std::move(finished);
  comm.state = ncclInProgress;
}

void fail(ncclComm& comm) {
  std::lock_guard const lock{mutex};
  comm.state = ncclUnhandledCudaError;
}

/// Enqueues a group, or a node of a graph that is one.
bool enqueue(queued const& job) {
  auto const e = cudaEmulatedEnqueue(job.stream, [job] {
    return job.transfers.empty() ? make_collective(job.comm, job.collective)
                                 : make_transfers(job.comm, job.transfers);
  });
  return e == cudaSuccess;
}

ncclResult_t launch_blocking(queued const& job) {
  {
    std::unique_lock lock{mutex};
    auto const result = block(lock, *job.comm, [&] { return connected(job); });
    if (result != ncclSuccess) return result;
  }
  return enqueue(job) ? ncclSuccess : ncclUnhandledCudaError;
}

void launch_without_blocking(queued const& job) {
  std::lock_guard const lock{mutex};
  ++launched_without_blocking;
  begin(*job.comm, [job, left = 2]() mutable {
    {
      std::lock_guard const here{mutex};
      if (!connected(job) || --left > 0) return false;
    }
    if (!enqueue(job)) fail(*job.comm);
    return true;
  });
}

ncclResult_t launch(std::vector<queued> const& jobs) {
  auto result = ncclSuccess;
  for (auto const& job : jobs) {
    {
      std::lock_guard const lock{mutex};
      ++launched;
      connect(job);
    }
    if (job.comm->blocking) {
      auto const e = launch_blocking(job);
      if (e != ncclSuccess) return e;
    } else {
      launch_without_blocking(job);
      result = ncclInProgress;
    }
  }
  return result;
}

/// Whether a call can be made on a communicator with a stream.
ncclResult_t check(communicator const& comm, cudaStream_t stream) {
  int device = 0;
  if (comm == nullptr || cudaStreamGetDevice(stream, &device) != cudaSuccess || device != comm->device)
    return ncclInvalidArgument;
  std::lock_guard const lock{mutex};
  return comm->state == ncclSuccess ? ncclSuccess : ncclInvalidArgument;
}

queued& place(communicator const& comm, cudaStream_t stream) {
  for (auto& each : group) {
    if (each.comm == comm && each.stream == stream) return each;
  }
  return group.emplace_back(queued{comm, stream, {}, {}});
}

/// The transport always opens a group.
ncclResult_t transfer_of(ncclComm_t handle, transfer const& what, cudaStream_t stream) {
  auto const comm = find(handle);
  auto const result = depth == 0 ? ncclInvalidUsage : check(comm, stream);
  if (result == ncclSuccess) place(comm, stream).transfers.push_back(what);
  return result;
}

ncclResult_t collective_of(ncclComm_t handle, offer const& what, cudaStream_t stream) {
  auto const comm = find(handle);
  auto const result = depth != 0 ? ncclInvalidUsage : check(comm, stream);
  return result == ncclSuccess ? launch({queued{comm, stream, {}, what}}) : result;
}

communicator make(int rank, int device, ncclConfig_t const& config, std::shared_ptr<world> const& all) {
  auto const comm = std::make_shared<ncclComm>();
  comm->rank = rank;
  comm->device = device;
  comm->blocking = config.blocking != 0;
  comm->shares = config.splitShare == 1;
  comm->all = all;
  ++all->joined;
  changed.notify_all();
  return comm;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard const lock{mutex};
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &next_id, sizeof next_id);
  ++next_id;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  int number = 0;
  std::memcpy(&number, &id, sizeof number);
  int device = 0;
  cudaGetDevice(&device);
  std::unique_lock lock{mutex};
  auto const all = worlds.try_emplace(number, std::make_shared<world>(size)).first->second;
  auto const comm = make(rank, device, *config, all);
  if (all->all_joined()) worlds.erase(number);
  handles[comm.get()] = comm;
  *handle = comm.get();
  if (comm->blocking) return block(lock, *comm, [&] { return all->all_joined(); });
  begin(*comm, [all] {
    std::lock_guard const here{mutex};
    return all->all_joined();
  });
  return ncclInProgress;
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  return ncclCommInitRankConfig(handle, size, id, rank, &blocking);
}

/// Only of communicators that do not block, and only into one of the same ranks. The new one is there when all have come. Like NCCL it
/// returns ncclSuccess while only the state of the parent tells that it goes on.
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  auto const comm = find(handle);
  std::lock_guard const lock{mutex};
  if (comm == nullptr || comm->blocking || comm->state != ncclSuccess || color != 0 || key != comm->rank)
    return ncclInvalidArgument;
  auto& splits = comm->all->splits;
  if (comm->splits == splits.size()) splits.push_back(std::make_shared<world>(comm->all->size));
  auto const made = make(comm->rank, comm->device, *config, splits[comm->splits++]);
  if (comm->shares) made->aborted = comm->aborted;
  *child = nullptr;
  begin(*comm, [made, child] {
    std::lock_guard const here{mutex};
    if (!made->all->all_joined()) return false;
    handles[made.get()] = made;
    *child = made.get();
    return true;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  auto const comm = find(handle);
  if (comm == nullptr || comm->state == ncclInProgress) return ncclInvalidArgument;
  return *rank = comm->rank, ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) { return *count = comm->all->size, ncclSuccess; }
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) { return *device = comm->device, ncclSuccess; }

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  auto const comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  std::unique_lock lock{mutex};
  if (comm->state == ncclInProgress) {
    auto finished = std::move(comm->finished);
    lock.unlock();
    bool const done = finished();
    lock.lock();
    if (done)
      comm->state = comm->state == ncclInProgress ? ncclSuccess : comm->state;
    else
      comm->finished = std::move(finished);
  }
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  auto const comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  std::unique_lock lock{mutex};
  if (comm->state != ncclSuccess) return ncclInvalidArgument;
  ++comm->all->finalized;
  changed.notify_all();
  if (comm->blocking) return block(lock, *comm, [&] { return comm->all->finalized >= comm->all->size; });
  begin(*comm, [all = comm->all] {
    std::lock_guard const here{mutex};
    return all->finalized >= all->size;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  std::lock_guard const lock{mutex};
  return release(handle);
}

/// Ends what others of its family do as well, when they share.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  std::lock_guard const lock{mutex};
  auto const found = handles.find(handle);
  if (found == handles.end()) return ncclInvalidArgument;
  *found->second->aborted = true;
  changed.notify_all();
  return release(handle);
}

/// Frees nothing.
ncclResult_t ncclCommRevoke(ncclComm_t handle, int) {
  auto const comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  std::lock_guard const lock{mutex};
  *comm->aborted = true;
  changed.notify_all();
  return ncclSuccess;
}

/// The first version that allows several ranks on a device.
ncclResult_t ncclGetVersion(int* version) { return *version = NCCL_VERSION(2, 30, 0), ncclSuccess; }
char const* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "another error";
}
char const* ncclGetLastError(ncclComm_t) { return "told by the emulated NCCL"; }

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  return --depth > 0 ? ncclSuccess : launch(std::exchange(group, {}));
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

}  // extern "C"

namespace emulator {

std::size_t nccl_launches() {
  std::lock_guard const lock{mutex};
  return launched;
}

std::size_t nccl_launches_without_blocking() {
  std::lock_guard const lock{mutex};
  return launched_without_blocking;
}

std::size_t nccl_communicators() {
  std::lock_guard const lock{mutex};
  return handles.size();
}

void break_communicator(ncclComm_t handle, ncclResult_t error) {
  std::lock_guard const lock{mutex};
  auto const found = handles.find(handle);
  if (found != handles.end()) found->second->state = error;
}

}  // namespace emulator
