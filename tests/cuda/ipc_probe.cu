// SPDX-License-Identifier: Apache-2.0
// Can processes that share ONE GPU exchange frames through CUDA IPC, with a barrier inside the kernel?
//   nvcc -O2 -std=c++17 -gencode=arch=compute_90,code=sm_90 ipc_probe.cu -o ipc_probe;  timeout 60 ./ipc_probe [PROCESSES] > ipc.json
// Each process opens the windows of all others (cudaIpcOpenMemHandle), writes codes into its own, passes a barrier of flags with system
// scope, and adds the codes of all. Processes on one GPU take turns (time slices), so times say nothing about NVLink; that the protocol
// ends and the sums are right says that the transport can be tested on one GPU. Forks before CUDA is initialized.
#include "probe.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

constexpr int most = 8;
constexpr unsigned n = 1U << 20;
struct window {
  unsigned flags[most];  // flags[r]: the round that rank r has reached, written by rank r
  alignas(128) signed char codes[n];
};
struct pointers {
  window* of[most];
};

__device__ void barrier(pointers const& p, int rank, int size, unsigned round) {
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < size) {
    unsigned* const there = &p.of[threadIdx.x]->flags[rank];
    unsigned* const here = &p.of[rank]->flags[threadIdx.x];
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(there), "r"(round) : "memory");
    unsigned seen = 0;
    while (seen < round) asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(here) : "memory");
  }
  __syncthreads();
}
__global__ void rounds(pointers p, int rank, int size, unsigned from, unsigned count) {
  for (unsigned k = 0; k < count; ++k) barrier(p, rank, size, from + k);
}
__global__ void fill(window* mine, int rank) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    mine->codes[i] = static_cast<signed char>((i + 3U * static_cast<unsigned>(rank)) % 13);
}
__global__ void add_all(pointers p, int rank, int size, unsigned round, int* sums) {
  if (blockIdx.x == 0) barrier(p, rank, size, round);  // one block waits; the next launch reads
  (void)sums;
}
__global__ void read_all(pointers p, int size, int* sums) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int s = 0;
    for (int r = 0; r < size; ++r) s += reinterpret_cast<volatile signed char*>(p.of[r]->codes)[i];
    sums[i] = s;
  }
}

struct shared {
  cudaIpcMemHandle_t handle[most];
  volatile int ready[most], opened[most], done[most];
};
static void meet(volatile int* flags, int rank, int size) {
  __sync_synchronize();
  flags[rank] = 1;
  for (int r = 0; r < size; ++r)
    while (flags[r] == 0) usleep(200);
}

int main(int argc, char** argv) {
  int const size = argc > 1 ? std::atoi(argv[1]) : 2;
  auto* const s = static_cast<shared*>(mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int rank = 0;
  for (int r = 1; r < size && rank == 0; ++r)
    if (fork() == 0) rank = r;
  OK(cudaSetDevice(0));
  pointers p{};
  OK(cudaMalloc(&p.of[rank], sizeof(window)));
  OK(cudaMemset(p.of[rank], 0, sizeof(window)));
  OK(cudaDeviceSynchronize());
  OK(cudaIpcGetMemHandle(&s->handle[rank], p.of[rank]));
  meet(s->ready, rank, size);
  for (int r = 0; r < size; ++r)
    if (r != rank) OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&p.of[r]), s->handle[r], cudaIpcMemLazyEnablePeerAccess));
  int* sums = nullptr;
  OK(cudaMalloc(&sums, n * sizeof(int)));
  meet(s->opened, rank, size);
  fill<<<264, 256>>>(p.of[rank], rank);
  add_all<<<1, 32>>>(p, rank, size, 1, sums);
  read_all<<<264, 256>>>(p, size, sums);
  OK(cudaDeviceSynchronize());
  auto* const found = static_cast<int*>(std::malloc(n * sizeof(int)));
  OK(cudaMemcpy(found, sums, n * sizeof(int), cudaMemcpyDeviceToHost));
  unsigned wrong = 0;
  for (unsigned i = 0; i < n; ++i) {
    int right = 0;
    for (int r = 0; r < size; ++r) right += static_cast<int>((i + 3U * static_cast<unsigned>(r)) % 13);
    wrong += right != found[i];
  }
  constexpr unsigned count = 20;
  auto const start = std::chrono::steady_clock::now();
  rounds<<<1, 32>>>(p, rank, size, 2, count);
  OK(cudaDeviceSynchronize());
  double const us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / count;
  meet(s->done, rank, size);
  if (rank == 0) {
    std::printf("{\"processes\": %d, \"wrong_sums\": %u, \"us_a_barrier\": %.1f}\n", size, wrong, us);
    for (int r = 1; r < size; ++r) wait(nullptr);
  }
  return wrong != 0;
}
