// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief What a test can ask of the emulated NCCL, and do to it. Link cuda_emulator::nccl.

#pragma once

#include <nccl.h>

#include <cstddef>

namespace emulator {

/// Groups and collectives that were enqueued in this process so far, of all ranks.
std::size_t nccl_launches();

/// Those of them for which NCCL would have started a thread: on communicators that do not block.
std::size_t nccl_launches_without_blocking();

/// Communicators that were made and neither destroyed nor aborted.
std::size_t nccl_communicators();

/// Lets the next look at a communicator find an error, as when another process died.
void break_communicator(ncclComm_t communicator, ncclResult_t error);

}  // namespace emulator
