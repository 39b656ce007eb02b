// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Kernels with the defects that scripts/sass-report must find.

namespace globalq {

__global__ void fused_by_nvcc(double* x) { x[0] = x[1] * x[2] + x[3]; }

__global__ void fused_by_ptxas(double* x) {
  double product;
  asm("mul.f64 %0, %1, %2;" : "=d"(product) : "d"(x[1]), "d"(x[2]));
  asm("add.f64 %0, %1, %2;" : "=d"(x[0]) : "d"(product), "d"(x[3]));
}

__global__ void divides(double* x) { x[0] = x[1] / x[2]; }

}  // namespace globalq
