// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libcuda.so.1 for tests: the functions of the driver that Kokkos calls to learn a stream's device. A context is the
/// number of its device, plus one.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace {
thread_local std::vector<CUcontext> contexts;
}

extern "C" {

CUresult cuStreamGetCtx(CUstream stream, CUcontext* c) {
  int device = 0;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess) return CUDA_ERROR_INVALID_HANDLE;
  *c = reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext c) { return contexts.push_back(c), CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext* c) {
  *c = contexts.back();
  return contexts.pop_back(), CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* d) {
  int current = 0;
  cudaGetDevice(&current);
  *d = contexts.empty() ? current
                        : static_cast<CUdevice>(reinterpret_cast<std::intptr_t>(contexts.back()) - 1);
  return CUDA_SUCCESS;
}
}
