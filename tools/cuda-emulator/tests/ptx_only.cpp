// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A kernel that nvcc compiles to PTX without machine code, for runtime_test.cpp.

#include <cuda_runtime.h>

namespace {

__global__ void set_to_seven(int* to) { *to = 7; }

}  // namespace

void const* kernel_without_machine_code() { return reinterpret_cast<void const*>(&set_to_seven); }
