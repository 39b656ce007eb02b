// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Kernels with the defects that scripts/sass-report and argument_sizes.py must find.

namespace globalq {

__global__ void fused_by_nvcc(double* x) { x[0] = x[1] * x[2] + x[3]; }

__global__ void fused_by_ptxas(double* x) {
  double product;
  asm("mul.f64 %0, %1, %2;" : "=d"(product) : "d"(x[1]), "d"(x[2]));
  asm("add.f64 %0, %1, %2;" : "=d"(x[0]) : "d"(product), "d"(x[3]));
}

__global__ void divides(double* x) { x[0] = x[1] / x[2]; }

struct empty {};
struct two_layouts {
  [[no_unique_address]] empty first;
  [[no_unique_address]] empty second;
  double* x;
};
__global__ void takes_two_layouts(two_layouts p) { *p.x = 1; }

}  // namespace globalq
