// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libcudart.so.13 for tests: streams, events and graphs.

#include "device.hpp"

#include <utility>

namespace {

using namespace emulator;

using held = std::unique_lock<std::mutex>;

/// The host may not wait for a stream that is captured.
bool spoils_capture(CUstream_st& s) {
  if (s.capture == nullptr) return false;
  s.invalid = true;
  return true;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return call(in_capture::allowed, [&](runtime& r, held&) {
    auto s = std::make_unique<CUstream_st>();
    s->device = current_device;
    s->blocking = (flags & cudaStreamNonBlocking) == 0;
    *handle = s.get();
    r.streams[*handle] = std::move(s);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithFlags(handle, cudaStreamDefault);
}

/// What is enqueued will still be done.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (!r.streams.contains(handle)) return cudaErrorInvalidResourceHandle;  // the default stream
    s.destroyed = true;
    s.capture.reset();
    if (s.queue.empty()) r.streams.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held& lock) {
    if (spoils_capture(s)) return cudaErrorStreamCaptureUnsupported;
    r.finish(lock, s);
    return cudaSuccess;
  });
}

/// Each time some work is done, so that a host that asks again and again gets on.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (spoils_capture(s)) return cudaErrorStreamCaptureUnsupported;
    if (!s.queue.empty()) r.step();
    return s.queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call(in_capture::forbidden, [](runtime& r, held& lock) {
    r.finish_device(lock, current_device);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return on_stream(handle, [&](runtime&, CUstream_st& s, held&) { return *device = s.device, cudaSuccess; });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  return *e = reinterpret_cast<cudaEvent_t>(new int), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete reinterpret_cast<int*>(e), cudaSuccess; }

// ---- Graphs: one stream at a time

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (&s == &r.of(s.device).legacy && r.implicitly_captured(s.device) != nullptr)
      return cudaErrorStreamCaptureImplicit;
    *status = s.capture == nullptr ? cudaStreamCaptureStatusNone
              : s.invalid          ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (&s == &r.of(s.device).legacy) return cudaErrorStreamCaptureUnsupported;
    if (s.capture != nullptr) return cudaErrorIllegalState;
    s.capture = std::make_unique<CUgraph_st>();
    s.invalid = false;
    s.mode = mode;
    s.captured_by = std::this_thread::get_id();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return on_stream(handle, [&](runtime&, CUstream_st& s, held&) {
    *graph = nullptr;
    if (s.capture == nullptr) return cudaErrorIllegalState;
    if (s.mode != cudaStreamCaptureModeRelaxed && s.captured_by != std::this_thread::get_id()) {
      s.invalid = true;
      return cudaErrorStreamCaptureWrongThread;
    }
    auto captured = std::move(s.capture);
    if (s.invalid) return cudaErrorStreamCaptureInvalidated;
    *graph = captured.release();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* runnable, cudaGraph_t graph, unsigned long long) {
  return call(in_capture::allowed, [&](runtime&, held&) {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *runnable = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t runnable, cudaStream_t handle) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    for (recipe const& node : runnable->nodes) {
      if (auto const e = r.enqueue(s, node); e != cudaSuccess) return e;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t runnable) { return delete runnable, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

// ---- For the emulated NCCL

cudaError_t cudaEmulatedEnqueue(cudaStream_t handle, recipe const& make) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) { return r.enqueue(s, make); });
}
void cudaEmulatedCopy(void* to, void const* from, std::size_t bytes) { copy(the_runtime(), to, from, bytes); }

}  // extern "C"
