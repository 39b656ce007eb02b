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
  s.capture->invalid = true;
  return true;
}

/// A stream waits in a capture for what another one has captured: it joins the capture.
cudaError_t wait_in_capture(runtime& r, CUstream_st& s, CUevent_st const& e) {
  auto const capture = e.capture.lock();
  if (capture == nullptr || !r.streams.contains(e.stream)) return cudaErrorCapturedEvent;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (&s == &r.of(s.device).legacy) {
    capture->invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (s.capture != nullptr && s.capture != capture) {
    s.capture->invalid = capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (s.capture == nullptr) {
    s.capture = capture;
    s.captured = 0;
  }
  s.awaited = false;
  if (&s != e.stream && e.stream->captured == e.nodes) e.stream->awaited = true;
  return cudaSuccess;
}

/// A call that waits for an event, or asks for it.
template <class Body>
cudaError_t on_event(cudaEvent_t e, Body body) {
  return call(in_capture::forbidden, [&](runtime& r, held& lock) {
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (e->in_capture) return cudaErrorCapturedEvent;
    return e->last == nullptr ? cudaSuccess : body(r, *e->last, lock);
  });
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

/// Kernels of two streams never overlap here, so priorities change nothing.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int) {
  return cudaStreamCreateWithFlags(handle, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
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

// ---- Events: work that others wait for

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (s.capture != nullptr) {
      if (s.capture->invalid) return cudaErrorStreamCaptureInvalidated;
      *e = {nullptr, true, s.capture, &s, s.captured};
      return cudaSuccess;
    }
    auto const now = std::make_shared<CUevent_st::moment>();
    *e = {now};
    return r.enqueue(s, [now] {
      return [now] {
        *now = {true, std::chrono::steady_clock::now()};
        return true;
      };
    });
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (e->in_capture) return wait_in_capture(r, s, *e);
    if (s.capture != nullptr) {
      s.capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (e->last == nullptr) return cudaSuccess;
    return r.enqueue(s, [until = e->last] { return [until] { return until->reached; }; });
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  return on_event(e, [](runtime& r, CUevent_st::moment& last, held& lock) {
    r.work_until(lock, [&] { return last.reached; });
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  return on_event(e, [](runtime& r, CUevent_st::moment& last, held&) {
    if (!last.reached) r.step();
    return last.reached ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return on_event(to, [&](runtime&, CUevent_st::moment& last, held&) {
    if (from->in_capture || from->last == nullptr) return cudaErrorInvalidResourceHandle;
    if (!from->last->reached || !last.reached) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(last.at - from->last->at).count();
    return cudaSuccess;
  });
}

// ---- Graphs

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (&s == &r.of(s.device).legacy && r.implicitly_captured(s.device) != nullptr)
      return cudaErrorStreamCaptureImplicit;
    *status = s.capture == nullptr ? cudaStreamCaptureStatusNone
              : s.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    if (&s == &r.of(s.device).legacy) return cudaErrorStreamCaptureUnsupported;
    if (s.capture != nullptr) return cudaErrorIllegalState;
    s.capture = std::make_shared<CUgraph_st>();
    s.capture->origin = &s;
    s.capture->mode = mode;
    s.capture->captured_by = std::this_thread::get_id();
    s.captured = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return on_stream(handle, [&](runtime& r, CUstream_st& s, held&) {
    *graph = nullptr;
    if (s.capture == nullptr) return cudaErrorIllegalState;
    if (s.capture->mode != cudaStreamCaptureModeRelaxed &&
        s.capture->captured_by != std::this_thread::get_id()) {
      s.capture->invalid = true;
      return cudaErrorStreamCaptureWrongThread;
    }
    if (s.capture->origin != &s) {
      s.capture->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    auto const captured = s.capture;
    bool joined = true;
    for (auto const& [other, each] : r.streams) {
      if (each->capture != captured) continue;
      joined = joined && (each.get() == &s || each->awaited);
      each->capture.reset();
    }
    if (captured->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st(std::move(*captured));
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
