// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libcuda.so.1 for tests: the three functions of the driver that Kokkos calls to learn a stream's device.

#include <cuda.h>

extern "C" {
CUresult cuStreamGetCtx(CUstream, CUcontext* c) { return *c = nullptr, CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext*) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* d) { return *d = 0, CUDA_SUCCESS; }
}
