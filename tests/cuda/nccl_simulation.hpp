// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: the part of CUDA and NCCL that transport::nccl calls, played on the host, for machines without a GPU.
///
/// It is as strict as their documentation allows: a stream runs one thing after the other; a group is one of them, ends
/// when all of its transfers have, and a send ends only when it was received; sizes that differ never match;
/// communicators do not block, and enqueue a group only once they are asked how it goes. What a real device does beyond
/// that (memory, connections, graphs) it does not show: nccl_device.cpp does, on a GPU.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>

namespace simulation {

/// Groups and collectives that were enqueued in this process so far.
std::size_t launches();

/// Communicators that were made and neither destroyed nor aborted.
std::size_t communicators();

/// Lets the next look at the communicator find an error, as when another process died.
void break_communicator(ncclComm_t communicator, ncclResult_t error);

/// Whether the stream is being captured. Nothing is recorded.
void set_capturing(cudaStream_t stream, bool capturing);

}  // namespace simulation
