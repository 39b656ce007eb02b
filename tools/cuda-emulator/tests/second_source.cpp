// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief For runtime_test.cpp: another source of the program, with a constant of the same name.

#include "second_source.hpp"

__constant__ int factor;

namespace {

__global__ void scale(int* to, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] *= factor;
}

}  // namespace

cudaError_t set_second_factor(int to) { return cudaMemcpyToSymbol(factor, &to, sizeof to); }

cudaError_t scale_by_second_factor(int* values, int n) {
  scale<<<(n + 31) / 32, 32>>>(values, n);
  return cudaGetLastError();
}
