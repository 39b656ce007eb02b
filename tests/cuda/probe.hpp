// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: errors of the probes, which are programs of their own.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

/// Ends the process of `rank` if a call of the CUDA runtime fails.
#define OK(call)                                                                        \
  do {                                                                                  \
    cudaError_t const code = (call);                                                    \
    if (code != cudaSuccess) {                                                          \
      std::fprintf(stderr, "rank %d: %s: %s\n", rank, #call, cudaGetErrorString(code)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)
