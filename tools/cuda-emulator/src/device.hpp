// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The emulated devices of a process: memory, modules, streams that run late, and the lock of all of it.

#pragma once

#include "fat_binary.hpp"
#include "machine.hpp"

#include <cuda_runtime_api.h>
#include <cuda_emulator/counts.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace emulator {

/// A piece of a stream's work. False while it waits for what another worker has yet to do; it is called again then.
using work = std::function<bool()>;

/// Makes a piece of work: once for a call, each time for a node of a graph.
using recipe = std::function<work()>;

}  // namespace emulator

// What the emulated NCCL is built on, across the border of two libraries.
extern "C" {
/// Enqueues work, or a node of the graph that the stream is captured into.
cudaError_t cudaEmulatedEnqueue(cudaStream_t handle, emulator::recipe const& make);
/// Copies between memory of the host and of devices. Only within work. @throws fault
void cudaEmulatedCopy(void* to, void const* from, std::size_t bytes);
}

struct CUstream_st;

/// What was captured, in the order of the calls: one that all its dependencies allow.
struct CUgraph_st {
  std::vector<emulator::recipe> nodes{};

  // while it is captured
  CUstream_st const* origin = nullptr;  ///< Where it began; others joined it by waiting for an event.
  bool invalid = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id captured_by{};
};
struct CUgraphExec_st {
  std::vector<emulator::recipe> nodes;
};

struct CUstream_st {
  struct numbered {
    std::uint64_t number;  ///< In the order of all calls of the process.
    emulator::work run;
  };

  int device = 0;
  bool blocking = true;    ///< Waits for the legacy default stream, and that one for this.
  bool destroyed = false;  ///< But still has work to do.
  std::deque<numbered> queue{};

  std::shared_ptr<CUgraph_st> capture{};  ///< While it is captured.
  std::uint64_t captured = 0;             ///< Nodes of it.
  bool awaited = true;                    ///< Somebody in the capture waits for all of them.
};

struct CUevent_st {
  /// When the work before an event was done.
  struct moment {
    bool reached = false;
    std::chrono::steady_clock::time_point at{};
  };
  std::shared_ptr<moment> last{};  ///< Of the last record, if there is one.

  // where that was captured
  bool in_capture = false;
  std::weak_ptr<CUgraph_st> capture{};
  CUstream_st* stream = nullptr;
  std::uint64_t nodes = 0;  ///< Of the stream.
};

namespace emulator {

/// What a fat binary became. It is read when one of its kernels is first launched, or its variables are asked for.
struct module_record {
  void const* wrapper;
  bool read = false;
  std::string ptx{};
  std::map<std::string, std::uint32_t> registers{};
};

/// A kernel or variable, by the address of its shadow on the host.
struct named {
  module_record* module;
  std::string name;
};

struct pinned_range {
  std::uint64_t bytes;
  bool freed = false;
};

/// One device: kernels on it reach no memory of another.
struct device_state {
  explicit device_state(int ordinal) : bytes(first_address_of(ordinal)) { legacy.device = ordinal; }

  memory bytes;
  std::map<module_record const*, std::unique_ptr<loaded_module>> modules{};
  CUstream_st legacy{};  ///< The default stream.
};

/// All devices, and what the process has told the runtime. How many, the environment variable EMULATED_DEVICES says (1).
///
/// Streams run late: their work is done when the host waits for it or asks how far it is, and now and then at other calls;
/// which stream goes on is drawn at random from EMULATED_SEED. With seed 0 nothing is done before somebody waits for it.
struct runtime {
  runtime();

  std::mutex mutex;                    ///< Held while work runs.
  std::condition_variable progressed;  ///< Something was enqueued or done.
  std::vector<std::unique_ptr<device_state>> devices;
  std::vector<std::unique_ptr<module_record>> modules;
  std::unordered_map<void const*, named> kernels;
  std::unordered_map<void const*, named> variables;
  std::map<std::uint64_t, pinned_range>
      pinned;  ///< By their begin. None is forgotten: its addresses are not used again.
  std::map<cudaStream_t, std::unique_ptr<CUstream_st>> streams;
  std::uint64_t issued = 0;
  executed_counts executed;
  std::atomic<cudaError_t> sticky = cudaSuccess;

  /// The pinned memory that an address lies in, or nullptr.
  pinned_range* pinned_at(void const* p);

  device_state& of(int device) { return *devices[static_cast<std::size_t>(device)]; }
  loaded_module& loaded(module_record& m, int device);

  /// The stream of a handle, or nullptr where there is none.
  CUstream_st* find(cudaStream_t handle);

  /// Enqueues work, or a node of the graph that the stream is captured into. What the API refuses then is an error.
  cudaError_t enqueue(CUstream_st& s, recipe make);

  /// Does the next piece of some stream's work. @returns whether any could be done
  bool step();
  /// A few steps, or none.
  void drift();
  /// Works until `done()`, or a fault.
  template <class Done>
  void work_until(std::unique_lock<std::mutex>& lock, Done done) {
    while (sticky == cudaSuccess && !done()) {
      if (!step()) progressed.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  /// Until a stream, or all of a device, has done what is enqueued by now.
  void finish(std::unique_lock<std::mutex>& lock, CUstream_st const& s);
  void finish_device(std::unique_lock<std::mutex>& lock, int device);

  /// A capture that forbids this thread calls that may wait or allocate, or nullptr.
  CUstream_st* forbidding();
  /// A capture of a stream of the device that the legacy stream would wait for, or nullptr.
  CUstream_st* implicitly_captured(int device);

  void fail(fault const& what);

 private:
  bool may_start(CUstream_st const& s);
  std::vector<CUstream_st*> all_streams();

  std::mt19937_64 random_;
  bool late_;
};

/// Never destroyed: destructors of other libraries call CUDA late.
runtime& the_runtime();

inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;

inline std::uint64_t address_of(void const* p) { return reinterpret_cast<std::uint64_t>(p); }
inline bool on_device(void const* p) { return address_of(p) >= first_address; }

/// @throws fault when an address of the host lies in pinned memory that is freed
void expect_alive(runtime& r, void const* p);

/// Copies between memory of the host and of devices.
void copy(runtime& r, void* to, void const* from, std::size_t bytes);

/// What a call may do while a graph is captured.
enum class in_capture {
  allowed,
  forbidden  ///< It may wait or allocate: an error that spoils the capture, if this thread has one that forbids it.
};

inline cudaError_t told(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

/// Runs a body under the lock, then perhaps some of what is enqueued; a fault becomes the sticky error.
/// @param body  of (runtime&, std::unique_lock<std::mutex>&), gives a cudaError_t
template <class Body>
cudaError_t call(in_capture may, Body body) {
  runtime& r = the_runtime();
  std::unique_lock lock(r.mutex);
  if (r.sticky != cudaSuccess) return told(r.sticky);
  if (may == in_capture::forbidden) {
    if (auto* const s = r.forbidding()) {
      s->capture->invalid = true;
      return told(cudaErrorStreamCaptureUnsupported);
    }
  }
  cudaError_t result = cudaSuccess;
  try {
    result = body(r, lock);
    r.drift();
  } catch (fault const& what) {
    r.fail(what);
  }
  cudaError_t const sticky = r.sticky;
  return told(sticky != cudaSuccess ? sticky : result);
}

/// The same for work on a stream: body(runtime&, CUstream_st&, std::unique_lock<std::mutex>&).
template <class Body>
cudaError_t on_stream(cudaStream_t handle, Body body) {
  return call(in_capture::allowed, [&](runtime& r, std::unique_lock<std::mutex>& lock) {
    CUstream_st* const s = r.find(handle);
    return s == nullptr ? cudaErrorInvalidResourceHandle : body(r, *s, lock);
  });
}

}  // namespace emulator
