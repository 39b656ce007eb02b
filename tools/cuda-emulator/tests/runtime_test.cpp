// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The emulated runtime: streams that run late, pinned memory, captures and graphs, several devices, sticky errors. And that
/// programs which wait for too little, or for the wrong stream, are found out.

#include "second_source.hpp"

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <cuda_emulator/counts.hpp>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

/// Sets an int to 7 (ptx_only.cpp).
void const* kernel_without_machine_code();

__constant__ int factor;  // second_source.cpp has another one

namespace {

__global__ void add(int* to, int const* from, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] += from[i];
}

__global__ void scale(int* to, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] *= factor;
}

/// Needs more than 64 registers: where it stores depends on what it loads, so all values are loaded before the first is stored.
__device__ void scatter_64(int* p) {
  int values[64];
  for (int i = 0; i < 64; ++i) values[i] = p[i];
  for (int i = 0; i < 64; ++i) p[values[i]] = values[63 - i];
}
__global__ void scatter(int* p) { scatter_64(p); }
__global__ void __launch_bounds__(1024, 2) scatter_in_32_registers(int* p) { scatter_64(p); }

constexpr int n = 100;
constexpr std::size_t bytes = n * sizeof(int);

void expect(cudaError_t e) { ASSERT_EQ(e, cudaSuccess) << cudaGetErrorString(e); }

struct free_device {
  void operator()(int* p) const { expect(cudaFree(p)); }
};
struct free_pinned {
  void operator()(int* p) const { expect(cudaFreeHost(p)); }
};
using device_array = std::unique_ptr<int[], free_device>;
using pinned_array = std::unique_ptr<int[], free_pinned>;

device_array on_device(int value) {
  int* p = nullptr;
  expect(cudaMalloc(&p, bytes));
  std::vector<int> const all(n, value);
  expect(cudaMemcpy(p, all.data(), bytes, cudaMemcpyHostToDevice));
  return device_array(p);
}
pinned_array pinned(int value) {
  int* p = nullptr;
  expect(cudaMallocHost(&p, bytes));
  std::fill_n(p, n, value);
  return pinned_array(p);
}
int first_of(device_array const& a) {
  int value = 0;
  expect(cudaMemcpy(&value, a.get(), sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

class stream {
 public:
  explicit stream(unsigned flags = cudaStreamNonBlocking) { expect(cudaStreamCreateWithFlags(&s_, flags)); }
  stream(stream const&) = delete;
  ~stream() { cudaStreamDestroy(s_); }
  operator cudaStream_t() const { return s_; }

 private:
  cudaStream_t s_ = nullptr;
};

void enqueue_add(device_array const& to, device_array const& from, cudaStream_t on) {
  add<<<(n + 31) / 32, 32, 0, on>>>(to.get(), from.get(), n);
  expect(cudaGetLastError());
}

// ---- Late streams

TEST(Streams, run_in_order) {
  stream const s;
  auto const a = on_device(1), b = on_device(2);
  for (int i = 0; i < 5; ++i) {
    enqueue_add(a, b, s);
    enqueue_add(b, a, s);
  }
  expect(cudaStreamSynchronize(s));
  int x = 1, y = 2;
  for (int i = 0; i < 5; ++i) {
    x += y;
    y += x;
  }
  EXPECT_EQ(first_of(a), x);
  EXPECT_EQ(first_of(b), y);
}

TEST(Streams, read_pageable_memory_at_the_call_and_pinned_memory_late) {
  bool late = false;
  for (int k = 0; k < 100; ++k) {
    stream const s;
    auto const a = on_device(0), b = on_device(0);
    auto const p = pinned(1);
    std::vector<int> pageable(n, 1);
    expect(cudaMemcpyAsync(a.get(), pageable.data(), bytes, cudaMemcpyHostToDevice, s));
    expect(cudaMemcpyAsync(b.get(), p.get(), bytes, cudaMemcpyHostToDevice, s));
    std::fill(pageable.begin(), pageable.end(), 2);
    std::fill_n(p.get(), n, 2);  // a mistake: nobody waited
    expect(cudaStreamSynchronize(s));
    EXPECT_EQ(first_of(a), 1);
    late = late || first_of(b) == 2;
  }
  EXPECT_TRUE(late);
}

TEST(Streams, write_pageable_memory_before_the_call_returns) {
  stream const s;
  auto const a = on_device(1), b = on_device(2);
  enqueue_add(a, b, s);
  std::vector<int> host(n);
  expect(cudaMemcpyAsync(host.data(), a.get(), bytes, cudaMemcpyDeviceToHost, s));
  EXPECT_EQ(host[0], 3);
}

/// Whether one of many runs of a program ends with another number than it should.
bool goes_wrong(std::function<int()> const& program, int expected) {
  bool wrong = false;
  for (int k = 0; k < 100; ++k) wrong = program() != expected || wrong;
  return wrong;
}

TEST(Streams, a_missing_wait_is_found) {
  auto const program = [](bool waits) {
    stream const s;
    auto const a = on_device(1), b = on_device(2);
    auto const p = pinned(0);
    enqueue_add(a, b, s);
    expect(cudaMemcpyAsync(p.get(), a.get(), bytes, cudaMemcpyDeviceToHost, s));
    if (waits) expect(cudaStreamSynchronize(s));
    int const seen = p[0];
    expect(cudaStreamSynchronize(s));
    return seen;
  };
  EXPECT_FALSE(goes_wrong([&] { return program(true); }, 3));
  EXPECT_TRUE(goes_wrong([&] { return program(false); }, 3));
}

TEST(Streams, work_on_the_default_stream_instead_of_ours_is_found) {
  auto const program = [](bool right) {
    stream const s;
    auto const a = on_device(1), b = on_device(2), c = on_device(0);
    enqueue_add(a, b, s);
    enqueue_add(c, a, right ? static_cast<cudaStream_t>(s) : nullptr);
    expect(cudaDeviceSynchronize());
    return first_of(c);
  };
  EXPECT_FALSE(goes_wrong([&] { return program(true); }, 3));
  EXPECT_TRUE(goes_wrong([&] { return program(false); }, 3));
}

TEST(Streams, wait_for_the_default_stream_unless_they_are_made_not_to) {
  auto const program = [](unsigned flags) {
    stream const s(flags);
    auto const a = on_device(1), b = on_device(2), c = on_device(0);
    enqueue_add(a, b, s);
    enqueue_add(c, a, nullptr);
    enqueue_add(c, a, s);
    expect(cudaStreamSynchronize(s));
    return first_of(c);
  };
  EXPECT_FALSE(goes_wrong([&] { return program(cudaStreamDefault); }, 6));
  EXPECT_TRUE(goes_wrong([&] { return program(cudaStreamNonBlocking); }, 6));
}

TEST(Streams, a_destroyed_stream_ends_its_work_and_has_no_handle) {
  auto const a = on_device(1), b = on_device(2);
  cudaStream_t gone = nullptr;
  {
    stream const s;
    gone = s;
    enqueue_add(a, b, s);
  }
  expect(cudaDeviceSynchronize());
  EXPECT_EQ(first_of(a), 3);
  EXPECT_EQ(cudaStreamSynchronize(gone), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST(Streams, asking_again_and_again_gets_on) {
  stream const s;
  auto const a = on_device(1), b = on_device(2);
  for (int i = 0; i < 10; ++i) enqueue_add(a, b, s);
  while (cudaStreamQuery(s) == cudaErrorNotReady) {
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "not being ready is no error";
  EXPECT_EQ(first_of(a), 21);
}

// ---- Faults

/// The process ends with the message of the fault, after CUDA has said that a kernel failed.
template <class Program>
void expect_fault(Program program, char const* message) {
  EXPECT_EXIT(
      {
        program();
        bool const sticky = cudaDeviceSynchronize() == cudaErrorLaunchFailure &&
                            cudaGetLastError() == cudaErrorLaunchFailure &&
                            cudaGetLastError() == cudaErrorLaunchFailure;
        std::_Exit(sticky ? 3 : 4);
      },
      ::testing::ExitedWithCode(3), message);
}

TEST(Faults, pinned_memory_that_was_freed_too_early) {
  expect_fault(
      [] {
        stream const s;
        auto const a = on_device(0);
        auto const p = pinned(1);
        auto const b = on_device(5);
        for (int i = 0; i < 50; ++i) enqueue_add(a, b, s);
        cudaMemcpyAsync(p.get(), a.get(), bytes, cudaMemcpyDeviceToHost, s);
        cudaFreeHost(const_cast<pinned_array&>(p).release());
        cudaStreamSynchronize(s);
        const_cast<device_array&>(a).release();
        const_cast<device_array&>(b).release();
      },
      "use after free: a copy needs .* in pinned memory of the host");
}

TEST(Faults, filling_pinned_memory_that_was_freed) {
  expect_fault(
      [] {
        stream const s;
        auto p = pinned(1);
        for (int i = 0; i < 50; ++i) cudaMemsetAsync(p.get(), 0, bytes, s);
        cudaFreeHost(p.release());
        cudaStreamSynchronize(s);
      },
      "use after free: a copy needs .* in pinned memory of the host");
}

TEST(Faults, memory_of_another_device) {
  int devices = 0;
  expect(cudaGetDeviceCount(&devices));
  ASSERT_EQ(devices, 2);
  expect_fault(
      [] {
        auto a = on_device(1);
        expect(cudaSetDevice(1));
        auto b = on_device(2);
        enqueue_add(b, a, nullptr);
        cudaDeviceSynchronize();
        a.release();
        b.release();
      },
      "out of bounds: 4 bytes");
}

TEST(Faults, registers_of_a_kernel_without_machine_code) {
  char const* const sentence =
      "the number of registers of .*set_to_seven.* is unknown, because its fat binary has no uncompressed "
      "machine code: compile with code=sm_90 besides code=compute_90";
  expect_fault(
      [] {
        cudaFuncAttributes a;
        EXPECT_EQ(cudaFuncGetAttributes(&a, kernel_without_machine_code()), cudaErrorLaunchFailure);
      },
      sentence);
  expect_fault(
      [] {
        int blocks = 0;
        EXPECT_EQ(
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel_without_machine_code(), 32, 0),
            cudaErrorLaunchFailure);
      },
      sentence);
}

TEST(Kernels, without_machine_code_run) {
  auto const a = on_device(1);
  int* p = a.get();
  void* arguments[] = {&p};
  expect(cudaLaunchKernel(kernel_without_machine_code(), dim3(1), dim3(1), arguments, 0, nullptr));
  EXPECT_EQ(first_of(a), 7);
}

TEST(Kernels, are_counted_when_they_have_run) {
  auto const a = on_device(1), b = on_device(2);
  auto const before = emulator::executed();
  ASSERT_TRUE(before);
  stream const s;
  enqueue_add(a, b, s);
  expect(cudaStreamSynchronize(s));
  auto const done = *emulator::executed() - *before;
  EXPECT_EQ(done.launches, 1U);
  EXPECT_EQ(done.loaded_bytes, 2 * bytes);
  EXPECT_EQ(done.stored_bytes, bytes);
}

TEST(Kernels, with_machine_code_have_registers_and_an_occupancy) {
  cudaFuncAttributes a;
  expect(cudaFuncGetAttributes(&a, reinterpret_cast<void const*>(&add)));
  EXPECT_GT(a.numRegs, 0);
  int blocks = 0;
  expect(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 1024, 0));
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 0, 0), cudaErrorInvalidValue);
  cudaGetLastError();
}

// ---- Devices

TEST(Devices, have_memory_and_streams_of_their_own) {
  auto const a = on_device(1);
  expect(cudaSetDevice(1));
  stream const s;
  auto const b = on_device(2), c = on_device(3);
  cudaPointerAttributes of_a, of_b;
  expect(cudaPointerGetAttributes(&of_a, a.get()));
  expect(cudaPointerGetAttributes(&of_b, b.get()));
  EXPECT_EQ(of_a.device, 0);
  EXPECT_EQ(of_b.device, 1);
  EXPECT_EQ(of_b.type, cudaMemoryTypeDevice);
  expect(cudaPointerGetAttributes(&of_b, b.get() + n));
  EXPECT_EQ(of_b.type, cudaMemoryTypeUnregistered) << "where an allocation ends; so does an H200";
  int device = 0;
  expect(cudaStreamGetDevice(s, &device));
  EXPECT_EQ(device, 1);
  enqueue_add(b, c, s);
  expect(cudaStreamSynchronize(s));
  expect(cudaMemcpy(a.get(), b.get(), bytes, cudaMemcpyDeviceToDevice));
  EXPECT_EQ(first_of(a), 5);
  expect(cudaSetDevice(0));
  add<<<1, 32, 0, s>>>(b.get(), c.get(), n);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle) << "the stream is another device's";
}

// ---- Modules

/// The registers that ptxas gave to a kernel.
int registers_of(void (*kernel)(int*)) {
  cudaFuncAttributes attributes;
  expect(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.numRegs;
}

TEST(Modules, report_the_registers_of_the_machine_code) {
  EXPECT_GT(registers_of(scatter), 64);
  EXPECT_LE(registers_of(scatter), 255);
  EXPECT_GT(registers_of(scatter_in_32_registers), 8);
  EXPECT_LE(registers_of(scatter_in_32_registers), 32);
  int blocks = 0;
  expect(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scatter, 512, 0));
  EXPECT_EQ(blocks, 1) << "of 65,536 registers a block takes more than half";
  expect(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scatter_in_32_registers, 512, 0));
  EXPECT_EQ(blocks, 4);
}

TEST(Modules, have_constants_of_their_own_on_each_device) {
  for (int const device : {0, 1}) {
    expect(cudaSetDevice(device));
    int const here = 3 + 10 * device;
    expect(cudaMemcpyToSymbol(factor, &here, sizeof here));
    expect(set_second_factor(5 + 10 * device));
  }
  for (int const device : {0, 1}) {
    expect(cudaSetDevice(device));
    auto const a = on_device(1), b = on_device(1);
    scale<<<(n + 31) / 32, 32>>>(a.get(), n);
    expect(cudaGetLastError());
    expect(scale_by_second_factor(b.get(), n));
    EXPECT_EQ(first_of(a), 3 + 10 * device);
    EXPECT_EQ(first_of(b), 5 + 10 * device);
  }
  expect(cudaSetDevice(0));
}

// ---- Graphs

TEST(Graphs, are_replayed_many_times) {
  stream const s;
  auto const a = on_device(1), b = on_device(2);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  expect(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  enqueue_add(a, b, s);
  enqueue_add(b, a, s);
  expect(cudaStreamEndCapture(s, &graph));
  EXPECT_EQ(first_of(a), 1) << "nothing ran";
  expect(cudaGraphInstantiate(&runnable, graph, 0));
  expect(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) expect(cudaGraphLaunch(runnable, s));
  expect(cudaStreamSynchronize(s));
  expect(cudaGraphExecDestroy(runnable));
  EXPECT_EQ(first_of(a), 21);
  EXPECT_EQ(first_of(b), 34);
}

/// What a call gives while a stream is captured, and what the end of the capture gives then.
std::pair<cudaError_t, cudaError_t> while_captured(unsigned flags, cudaStreamCaptureMode mode,
                                                   std::function<cudaError_t(cudaStream_t)> const& call) {
  stream const s(flags);
  expect(cudaStreamBeginCapture(s, mode));
  auto const first = call(s);
  cudaGraph_t graph = nullptr;
  auto const end = cudaStreamEndCapture(s, &graph);
  EXPECT_EQ(graph == nullptr, end != cudaSuccess);
  if (graph != nullptr) expect(cudaGraphDestroy(graph));
  cudaGetLastError();
  return {first, end};
}

TEST(Graphs, a_capture_refuses_what_would_wait_or_allocate) {
  auto const a = on_device(1);
  std::pair const refused(cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated);
  std::pair const implicit(cudaErrorStreamCaptureImplicit, cudaErrorStreamCaptureInvalidated);
  std::pair const fine(cudaSuccess, cudaSuccess);
  auto const local = cudaStreamCaptureModeThreadLocal, relaxed = cudaStreamCaptureModeRelaxed;
  auto const allocate = [](cudaStream_t) {
    void* p = nullptr;
    auto const e = cudaMalloc(&p, 16);
    if (e == cudaSuccess) EXPECT_EQ(cudaFree(p), cudaSuccess);
    return e;
  };
  EXPECT_EQ(while_captured(cudaStreamNonBlocking, local, allocate), refused);
  EXPECT_EQ(while_captured(cudaStreamNonBlocking, relaxed, allocate), fine);
  EXPECT_EQ(
      while_captured(cudaStreamNonBlocking, local, [](cudaStream_t s) { return cudaStreamSynchronize(s); }),
      refused);
  EXPECT_EQ(while_captured(cudaStreamNonBlocking, relaxed, [](cudaStream_t s) { return cudaStreamQuery(s); }),
            refused);
  EXPECT_EQ(
      while_captured(cudaStreamNonBlocking, local, [](cudaStream_t) { return cudaDeviceSynchronize(); }),
      refused);
  auto const fill = [&](cudaStream_t) { return cudaMemsetAsync(a.get(), 0, bytes, nullptr); };
  EXPECT_EQ(while_captured(cudaStreamNonBlocking, local, fill), fine);
  EXPECT_EQ(while_captured(cudaStreamDefault, local, fill), implicit) << "the default stream would wait";
  auto const ask = [](cudaStream_t) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(nullptr, &status);
  };
  EXPECT_EQ(while_captured(cudaStreamDefault, local, ask).first, cudaErrorStreamCaptureImplicit);
}

TEST(Graphs, a_stream_tells_whether_it_is_captured) {
  stream const s;
  auto const status = [&] {
    cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    expect(cudaStreamIsCapturing(s, &is));
    return is;
  };
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  expect(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

// ---- Events

class event {
 public:
  event() { expect(cudaEventCreateWithFlags(&e_, cudaEventDefault)); }
  event(event const&) = delete;
  ~event() { cudaEventDestroy(e_); }
  operator cudaEvent_t() const { return e_; }

 private:
  cudaEvent_t e_ = nullptr;
};

/// What a second stream reads of what a first one writes, with or without waiting for it.
int read_by_another(bool waits) {
  stream const first, second;
  event const written;
  auto const a = on_device(0), b = on_device(1), c = on_device(0);
  for (int i = 0; i < 20; ++i) enqueue_add(a, b, first);
  expect(cudaEventRecord(written, first));
  if (waits) expect(cudaStreamWaitEvent(second, written, 0));
  enqueue_add(c, a, second);
  expect(cudaStreamSynchronize(second));
  int const found = first_of(c);
  expect(cudaStreamSynchronize(first));
  return found;
}

TEST(Events, order_two_streams) {
  for (int k = 0; k < 20; ++k) EXPECT_EQ(read_by_another(true), 20);
}

TEST(Events, without_which_another_stream_does_not_wait) {
  int early = 0;
  for (int k = 0; k < 20; ++k) early += read_by_another(false) < 20 ? 1 : 0;
  EXPECT_GT(early, 0);
}

TEST(Events, tell_whether_and_when_they_were_reached) {
  stream const s;
  event const begin, end, never;
  auto const a = on_device(0), b = on_device(1);
  expect(cudaEventRecord(begin, s));
  enqueue_add(a, b, s);
  expect(cudaEventRecord(end, s));
  EXPECT_EQ(cudaEventQuery(never), cudaSuccess) << "nothing was recorded";
  while (cudaEventQuery(begin) == cudaErrorNotReady) {
  }
  expect(cudaEventSynchronize(end));
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(first_of(a), 1);
  float milliseconds = -1;
  expect(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, never, end), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

/// A second stream joins a capture of the first by an event, does what is given, and is perhaps waited for.
cudaError_t forked(std::function<cudaError_t(cudaStream_t, cudaStream_t)> const& work, bool joins,
                   cudaGraph_t* graph) {
  stream const first, second;
  event const fork, join;
  expect(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  expect(cudaEventRecord(fork, first));
  expect(cudaStreamWaitEvent(second, fork, 0));
  auto const e = work(first, second);
  if (joins) {
    expect(cudaEventRecord(join, second));
    expect(cudaStreamWaitEvent(first, join, 0));
  }
  auto const end = cudaStreamEndCapture(first, graph);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  expect(cudaStreamIsCapturing(second, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  cudaGetLastError();
  return e == cudaSuccess ? end : e;
}

TEST(Graphs, capture_streams_that_wait_for_events) {
  auto const a = on_device(1), b = on_device(2), c = on_device(3);
  auto const work = [&](cudaStream_t first, cudaStream_t second) {
    enqueue_add(a, b, first);
    enqueue_add(c, b, second);
    return cudaSuccess;
  };
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(forked(work, false, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  ASSERT_EQ(forked(work, true, &graph), cudaSuccess);
  EXPECT_EQ(first_of(c), 3) << "nothing ran";
  stream const s;
  cudaGraphExec_t runnable = nullptr;
  expect(cudaGraphInstantiate(&runnable, graph, 0));
  for (int i = 0; i < 2; ++i) expect(cudaGraphLaunch(runnable, s));
  expect(cudaStreamSynchronize(s));
  EXPECT_EQ(first_of(a), 5);
  EXPECT_EQ(first_of(c), 7);
  expect(cudaGraphExecDestroy(runnable));
  expect(cudaGraphDestroy(graph));
}

TEST(Graphs, refuse_events_from_outside_and_an_end_elsewhere) {
  event const outside;
  stream const other;
  expect(cudaEventRecord(outside, other));
  cudaGraph_t graph = nullptr;
  auto const isolated = [&](cudaStream_t first, cudaStream_t) {
    return cudaStreamWaitEvent(first, outside, 0);
  };
  EXPECT_EQ(forked(isolated, false, &graph), cudaErrorStreamCaptureIsolation);
  auto const elsewhere = [&](cudaStream_t, cudaStream_t second) {
    return cudaStreamEndCapture(second, &graph);
  };
  EXPECT_EQ(forked(elsewhere, false, &graph), cudaErrorStreamCaptureUnmatched);
  event const inside;
  auto const ask = [&](cudaStream_t first, cudaStream_t second) {
    auto const e = cudaEventRecord(inside, first);
    return e == cudaSuccess ? cudaStreamWaitEvent(second, inside, 0) : e;
  };
  EXPECT_EQ(forked(ask, true, &graph), cudaSuccess);
  expect(cudaGraphDestroy(graph));
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other, inside, 0), cudaErrorCapturedEvent);
  cudaGetLastError();
}

}  // namespace
