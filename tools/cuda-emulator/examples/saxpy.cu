// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief y = a x + y for 1,000 values in blocks of 256 threads. `saxpy beyond` forgets that the last block has 24 threads too many.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

__global__ void saxpy(int n, float a, float const* x, float* y) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += a * x[i];
}

#define CHECK(call)                                                       \
  do {                                                                    \
    cudaError_t const error = (call);                                     \
    if (error != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
      return 1;                                                           \
    }                                                                     \
  } while (false)

int main(int argc, char** argv) {
  bool const beyond = argc > 1 && std::strcmp(argv[1], "beyond") == 0;
  int const n = 1000;
  std::vector<float> x(n), y(n, 1);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i);

  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0));
  float *on_device_x = nullptr, *on_device_y = nullptr;
  CHECK(cudaMalloc(&on_device_x, n * sizeof(float)));
  CHECK(cudaMalloc(&on_device_y, n * sizeof(float)));
  CHECK(cudaMemcpy(on_device_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(on_device_y, y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  saxpy<<<(n + 255) / 256, 256>>>(beyond ? 1024 : n, 2, on_device_x, on_device_y);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(y.data(), on_device_y, n * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(on_device_x));
  CHECK(cudaFree(on_device_y));

  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += y[i] != 2 * x[i] + 1;
  std::printf("%s: %d values, %d of them wrong\n", device.name, n, wrong);
  return wrong == 0 ? 0 : 1;
}
