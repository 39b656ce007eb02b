// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libcudart.so.13 for tests: registration, launches and memory. Its functions have the names and the meaning of CUDA's;
/// what is not here is missing when a program is linked or loaded, not ignored.
///
/// A fault is written to stderr and is sticky, as on a device: every later call gives cudaErrorLaunchFailure.

#include "device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace {

using namespace emulator;

using held = std::unique_lock<std::mutex>;

struct call_configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<call_configuration> configurations;

bool is_pinned(runtime& r, void const* p) {
  auto const* const range = r.pinned_at(p);
  return range != nullptr && !range->freed;
}

/// Memory that any thread of the host may change or free as soon as the call has returned.
bool is_pageable(runtime& r, void const* p) { return !on_device(p) && !is_pinned(r, p); }

/// Pinned memory has pages of its own, which nobody gets again and which are closed when they are freed: what is still enqueued
/// and needs them is a fault.
std::uint64_t pages_of(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096 + 4096; }

cudaError_t pin(void** p, std::size_t bytes) {
  return call(in_capture::forbidden, [&](runtime& r, held&) {
    *p = mmap(nullptr, pages_of(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*p == MAP_FAILED) return cudaErrorMemoryAllocation;
    for (auto const& g : r.devices) g->bytes.adopt(*p, bytes, "pinned memory of the host");
    r.pinned[address_of(*p)] = {bytes};
    return cudaSuccess;
  });
}

cudaError_t unpin_now(runtime& r, void* p) {
  auto const found = r.pinned.find(address_of(p));
  if (found == r.pinned.end() || found->second.freed)
    return p == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  for (auto const& g : r.devices) g->bytes.free(address_of(p));
  mprotect(p, pages_of(found->second.bytes), PROT_NONE);
  found->second.freed = true;
  return cudaSuccess;
}

/// Work that is the same for each launch of a graph.
template <class Body>
recipe always(Body body) {
  return [body]() -> work {
    return [body] {
      body();
      return true;
    };
  };
}

/// What a stream does for a copy. Pageable memory is read at the call, and written before the call returns; pinned memory is
/// read and written when the stream comes to it.
cudaError_t copy_on(runtime& r, held& lock, CUstream_st& s, void* to, void const* from, std::size_t bytes) {
  bool const captured = s.capture != nullptr;
  if (!captured && is_pageable(r, from) && on_device(to)) {
    auto const first = static_cast<std::byte const*>(from);
    auto const staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    return r.enqueue(s, always([&r, to, staged] { copy(r, to, staged->data(), staged->size()); }));
  }
  auto const e = r.enqueue(s, always([&r, to, from, bytes] { copy(r, to, from, bytes); }));
  if (e == cudaSuccess && !captured && (is_pageable(r, to) || is_pageable(r, from))) r.finish(lock, s);
  return e;
}

cudaError_t fill_on(runtime& r, CUstream_st& s, void* p, int value, std::size_t bytes) {
  return r.enqueue(
      s, always([&r, p, value, bytes] {
        expect_alive(r, p);
        if (on_device(p))
          r.of(static_cast<int>(device_of(address_of(p)))).bytes.fill(address_of(p), value, bytes);
        else
          std::memset(p, value, bytes);
      }));
}

cudaError_t symbol_on(runtime& r, held& lock, CUstream_st& s, void const* symbol, void const* from,
                      std::size_t bytes, std::size_t offset) {
  auto const found = r.variables.find(symbol);
  if (found == r.variables.end()) return cudaErrorInvalidSymbol;
  void* const to = reinterpret_cast<void*>(
      r.loaded(*found->second.module, s.device).address_of(found->second.name) + offset);
  return copy_on(r, lock, s, to, from, bytes);
}

/// Arguments are copied at the call.
cudaError_t launch_on(runtime& r, CUstream_st& s, void const* host, dim3 grid, dim3 block, void** arguments,
                      std::size_t shared) {
  auto const found = r.kernels.find(host);
  if (found == r.kernels.end()) return cudaErrorInvalidDeviceFunction;
  if (s.device != current_device) return cudaErrorInvalidResourceHandle;
  if (std::min({grid.x, grid.y, grid.z, block.x, block.y, block.z}) == 0 || grid.y > 65535 ||
      grid.z > 65535 || block.z > 64 || std::uint64_t{block.x} * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  program const& kernel = r.loaded(*found->second.module, s.device).kernel(found->second.name);
  auto const parameters = std::make_shared<std::vector<std::byte>>(kernel.parameter_bytes);
  for (std::size_t k = 0; k < kernel.parameters.size(); ++k) {
    std::memcpy(parameters->data() + kernel.parameters[k].offset, arguments[k], kernel.parameters[k].bytes);
  }
  return r.enqueue(
      s, always([&kernel, parameters, grid, block, shared, &r, &on = r.of(s.device).bytes] {
        counts const done =
            run(kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, *parameters, shared}, on);
        ++r.executed.launches;
        r.executed.instructions += done.instructions;
        r.executed.loaded_bytes += done.loaded_bytes;
        r.executed.stored_bytes += done.stored_bytes;
      }));
}

}  // namespace

extern "C" {

// ---- Registration, by code that nvcc writes

void** __cudaRegisterFatBinary(void* wrapper) {
  runtime& r = the_runtime();
  std::lock_guard const lock(r.mutex);
  r.modules.push_back(std::make_unique<module_record>(module_record{wrapper}));
  return reinterpret_cast<void**>(r.modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** module, char const* host, char*, char const* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  runtime& r = the_runtime();
  std::lock_guard const lock(r.mutex);
  r.kernels[host] = {reinterpret_cast<module_record*>(module), name};
}

void __cudaRegisterVar(void** module, char* host, char*, char const* name, int, std::size_t, int, int) {
  runtime& r = the_runtime();
  std::lock_guard const lock(r.mutex);
  r.variables[host] = {reinterpret_cast<module_record*>(module), name};
}

char __cudaInitModule(void**) { return 0; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  auto const c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

// ---- Launches

cudaError_t cudaLaunchKernel(void const* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return on_stream(stream, [&](runtime& r, CUstream_st& s, held&) {
    return launch_on(r, s, host, grid, block, arguments, shared);
  });
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, void const* host) {
  return call(in_capture::allowed, [&](runtime& r, held&) {
    auto const found = r.kernels.find(host);
    if (found == r.kernels.end()) return cudaErrorInvalidDeviceFunction;
    auto const& [module, name] = found->second;
    program const& kernel = r.loaded(*module, current_device).kernel(name);
    auto const registers = module->registers.find(name);
    if (registers == module->registers.end())  // only ptxas knows them, and callers divide by them
      throw fault(
          "the number of registers of ", name,
          " is unknown, because its fat binary has no uncompressed machine code: compile with code=sm_90 "
          "besides code=compute_90, and with nvcc --no-compress");
    *to = {};
    to->sharedSizeBytes = kernel.shared_bytes;
    to->localSizeBytes = kernel.local_bytes;
    to->maxThreadsPerBlock = 1024;
    to->numRegs = static_cast<int>(registers->second);
    to->ptxVersion = to->binaryVersion = 90;
    to->maxDynamicSharedSizeBytes = 48 * 1024;
    return cudaSuccess;
  });
}
cudaError_t cudaFuncSetAttribute(void const*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(void const*, cudaFuncCache) { return cudaSuccess; }

/// By threads, blocks and registers, as an H100 has them.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void const* host, int threads,
                                                                   std::size_t shared, unsigned) {
  if (threads <= 0) return told(cudaErrorInvalidValue);
  cudaFuncAttributes a;
  if (auto const e = cudaFuncGetAttributes(&a, host); e != cudaSuccess) return e;
  int const warps = (threads + 31) / 32;
  int const by_registers = a.numRegs == 0 ? 32 : 65536 / ((a.numRegs + 7) / 8 * 8 * 32 * warps);
  std::size_t const bytes = a.sharedSizeBytes + shared + 1024;
  *blocks = std::min({32, 2048 / (32 * warps), by_registers, static_cast<int>(228 * 1024 / bytes)});
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* host, int threads,
                                                          std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

// ---- Memory

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  return call(in_capture::forbidden, [&](runtime& r, held&) {
    *p = nullptr;
    if (bytes != 0) *p = reinterpret_cast<void*>(r.of(current_device).bytes.allocate(bytes, "device memory"));
    return cudaSuccess;
  });
}
/// Waits for the device, as CUDA does.
cudaError_t cudaFree(void* p) {
  return call(in_capture::forbidden, [&](runtime& r, held& lock) {
    if (p == nullptr) return cudaSuccess;
    if (!on_device(p)) {
      r.finish_device(lock, current_device);
      return unpin_now(r, p);  // managed
    }
    auto const device = static_cast<int>(device_of(address_of(p)));
    r.finish_device(lock, device);
    if (r.sticky == cudaSuccess) r.of(device).bytes.free(address_of(p));
    return cudaSuccess;
  });
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return pin(p, bytes); }
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) { return pin(p, bytes); }
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) { return pin(p, bytes); }
/// Does not wait.
cudaError_t cudaFreeHost(void* p) {
  return call(in_capture::forbidden, [&](runtime& r, held&) { return unpin_now(r, p); });
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind) {
  return call(in_capture::forbidden, [&](runtime& r, held& lock) {
    CUstream_st& s = *r.find(nullptr);
    auto const e = copy_on(r, lock, s, to, from, bytes);
    if (e == cudaSuccess) r.finish(lock, s);
    return e;
  });
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return on_stream(
      stream, [&](runtime& r, CUstream_st& s, held& lock) { return copy_on(r, lock, s, to, from, bytes); });
}
cudaError_t cudaMemset(void* p, int value, std::size_t bytes) {
  return call(in_capture::forbidden,
              [&](runtime& r, held&) { return fill_on(r, *r.find(nullptr), p, value, bytes); });
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t stream) {
  return on_stream(stream, [&](runtime& r, CUstream_st& s, held&) { return fill_on(r, s, p, value, bytes); });
}

cudaError_t cudaMemcpyToSymbol(void const* symbol, void const* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind) {
  return call(in_capture::forbidden, [&](runtime& r, held& lock) {
    CUstream_st& s = *r.find(nullptr);
    auto const e = symbol_on(r, lock, s, symbol, from, bytes, offset);
    if (e == cudaSuccess) r.finish(lock, s);
    return e;
  });
}
cudaError_t cudaMemcpyToSymbolAsync(void const* symbol, void const* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind, cudaStream_t stream) {
  return on_stream(stream, [&](runtime& r, CUstream_st& s, held& lock) {
    return symbol_on(r, lock, s, symbol, from, bytes, offset);
  });
}
cudaError_t cudaMemPrefetchAsync(void const*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* to, void const* p) {
  return call(in_capture::allowed, [&](runtime& r, held&) {
    *to = {};
    // where an allocation ends, nothing is registered
    bool const there = on_device(p) && r.devices.at(device_of(address_of(p)))->bytes.holds(address_of(p));
    bool const pinned = is_pinned(r, p);
    to->type = there ? cudaMemoryTypeDevice : pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    to->device = there ? static_cast<int>(device_of(address_of(p))) : current_device;
    to->devicePointer = const_cast<void*>(there || pinned ? p : nullptr);
    to->hostPointer = const_cast<void*>(there ? nullptr : p);
    return cudaSuccess;
  });
}

// ---- What no other device tells

void emulatedCounts(emulator::executed_counts* to) {
  runtime& r = the_runtime();
  std::lock_guard const lock(r.mutex);
  *to = r.executed;
}

}  // extern "C"
