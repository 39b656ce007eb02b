// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What runtime_test.cpp calls of second_source.cpp.

#include <cuda_runtime.h>

/// Sets the factor of second_source.cpp, and multiplies values by it.
cudaError_t set_second_factor(int to);
cudaError_t scale_by_second_factor(int* values, int n);
