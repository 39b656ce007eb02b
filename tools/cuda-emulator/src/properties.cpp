// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libcudart.so.13 for tests: devices, what they are like, and errors.

#include "device.hpp"

#include <cstring>
#include <utility>

namespace {

using namespace emulator;

struct error_text {
  cudaError_t error;
  char const* name;
  char const* text;
};
constexpr error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed on the emulated device: see stderr"},
};
error_text const& text_of(cudaError_t e) {
  for (auto const& t : error_texts) {
    if (t.error == e) return t;
  }
  static constexpr error_text other{cudaErrorUnknown, "cudaErrorUnknown",
                                    "another error of the emulated device"};
  return other;
}

int attribute_of(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 227 * 1024;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return 228 * 1024;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrTotalConstantMemory:
      return 64 * 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrMultiProcessorCount:
      return 132;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return *count = static_cast<int>(the_runtime().devices.size()), cudaSuccess;
}
cudaError_t cudaGetDevice(int* which) { return *which = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int which) {
  if (which < 0 || std::cmp_greater_equal(which, the_runtime().devices.size()))
    return told(cudaErrorInvalidDevice);
  return current_device = which, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  return *value = attribute_of(which), cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int) {
  *to = {};
  std::strcpy(to->name, "nvcc's PTX, interpreted");
  to->totalGlobalMem = 80ULL << 30;
  to->totalConstMem = attribute_of(cudaDevAttrTotalConstantMemory);
  to->major = attribute_of(cudaDevAttrComputeCapabilityMajor);
  to->warpSize = attribute_of(cudaDevAttrWarpSize);
  to->multiProcessorCount = attribute_of(cudaDevAttrMultiProcessorCount);
  to->regsPerBlock = to->regsPerMultiprocessor = attribute_of(cudaDevAttrMaxRegistersPerBlock);
  to->sharedMemPerBlock = attribute_of(cudaDevAttrMaxSharedMemoryPerBlock);
  to->sharedMemPerBlockOptin = attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  to->sharedMemPerMultiprocessor = attribute_of(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  to->maxThreadsPerBlock = attribute_of(cudaDevAttrMaxThreadsPerBlock);
  to->maxThreadsPerMultiProcessor = attribute_of(cudaDevAttrMaxThreadsPerMultiProcessor);
  to->maxBlocksPerMultiProcessor = attribute_of(cudaDevAttrMaxBlocksPerMultiprocessor);
  for (int k = 0; k < 3; ++k) {
    to->maxThreadsDim[k] = k == 2 ? 64 : 1024;
    to->maxGridSize[k] = k == 0 ? 2147483647 : 65535;
  }
  to->unifiedAddressing = to->concurrentKernels = to->managedMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, the_runtime().sticky); }
cudaError_t cudaPeekAtLastError() { return last_error; }
char const* cudaGetErrorName(cudaError_t e) { return text_of(e).name; }
char const* cudaGetErrorString(cudaError_t e) { return text_of(e).text; }

}  // extern "C"
