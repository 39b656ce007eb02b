// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: helpers of transport::nccl for the CUDA runtime and NCCL's error texts.

#include "../../core/detail/abi.hpp"
#include "../concept.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>

#if NCCL_VERSION_CODE < 21400
#error "globalq: transport::nccl needs NCCL 2.14 or later (communicators that do not block)"
#endif

namespace GLOBALQ_ABI::transport::detail {

/// Makes a device current for this thread until the end of a scope.
class on_device {
 public:
  explicit on_device(int device) {
    if (cudaGetDevice(&previous_) != cudaSuccess || previous_ == device)
      previous_ = -1;
    else
      cudaSetDevice(device);
  }
  on_device(on_device const&) = delete;
  on_device& operator=(on_device const&) = delete;
  ~on_device() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }

 private:
  int previous_ = -1;
};

struct free_device_memory {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
struct free_pinned_memory {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};
struct destroy_stream {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
struct destroy_event {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using own_stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy_stream>;
using own_event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy_event>;
using device_memory = std::unique_ptr<std::byte, free_device_memory>;
using pinned_memory = std::unique_ptr<std::byte, free_pinned_memory>;

/// Pause between polls of another thread or device: first polls, then yields, then sleeps.
inline void pause(unsigned turn) {
  if (turn >= 4096)
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  else if (turn >= 64)
    std::this_thread::yield();
}

inline bool capturing(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  auto const code = cudaStreamIsCapturing(stream, &status);
  if (code != cudaErrorStreamCaptureImplicit) return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();
  return true;  // the legacy default stream, while another one is being captured
}

/// cudaSuccess if all work has run, else cudaErrorNotReady, which is then cleared as the runtime's last error.
inline cudaError_t state_of(cudaStream_t stream) {
  auto const state = cudaStreamQuery(stream);
  if (state == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
  return state;
}

template <Summand Value>
constexpr ncclDataType_t nccl_type() {
  static_assert(!std::same_as<Value, std::int16_t>, "globalq: NCCL has no 16-bit integer");
  if constexpr (std::same_as<Value, std::int8_t>) return ncclInt8;
  if constexpr (std::same_as<Value, std::int32_t>) return ncclInt32;
  return ncclFloat32;
}

/// "remote process exited or there was a network error (socket closed by peer)"
inline std::string nccl_text(ncclResult_t result, ncclComm_t communicator) {
  std::string text{ncclGetErrorString(result)};
  char const* const last = ncclGetLastError(communicator);
  if (last != nullptr && *last != '\0') text.append(" (").append(last).append(")");
  return text;
}

/// Remedy for an NCCL error.
inline char const* nccl_remedy(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:
      return "see why another worker ended or the network failed, then make new transports on all workers";
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return "let every worker make the same calls in the same order, with a device of its own; "
             "NCCL_DEBUG=WARN prints details";
    default:
      return "run again with NCCL_DEBUG=INFO and look for the first error";
  }
}

}  // namespace GLOBALQ_ABI::transport::detail
