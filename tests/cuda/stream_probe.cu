// SPDX-License-Identifier: Apache-2.0
// Can processes that share one GPU order their streams by memory operations (write-value, wait-value) on shared host memory, and can the
// host release a stream that waits for a process that was killed?
//   nvcc -O2 -std=c++17 -gencode=arch=compute_90,code=sm_90 stream_probe.cu -o stream_probe;  timeout 60 ./stream_probe
// Two processes register the same memory (cudaHostRegister). Each round: a kernel writes a value, the stream writes the round's number into
// its own flag, waits for the other's flag, and a kernel reads the other's value. Prints one line of JSON for each fact. The child is
// forked before CUDA is initialized.
#include "probe.hpp"

#include <cuda.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct alignas(128) line {
  volatile std::uint32_t flag;
  volatile std::uint32_t value;
};
struct page {
  line of[2];
  alignas(128) volatile int ready[2], wrong[2];
};

#define DRIVER(call)                                                            \
  do {                                                                          \
    CUresult const code = (call);                                               \
    if (code != CUDA_SUCCESS) {                                                 \
      std::fprintf(stderr, "rank %d: %s: error %d\n", rank, #call, (int)code);  \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

__global__ void put(line* mine, std::uint32_t value) { mine->value = value; }
__global__ void get(line const* other, std::uint32_t expected, std::uint32_t* wrong) {
  if (other->value != expected) atomicAdd(wrong, 1U);
}

using wait_value = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
using write_value = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

static void* entry(char const* name, int rank) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  OK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  if (found == nullptr) {
    std::fprintf(stderr, "rank %d: the driver has no %s (%d)\n", rank, name, static_cast<int>(result));
    std::exit(1);
  }
  return found;
}

static double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main() {
  auto* const shared = static_cast<page*>(
      mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t const child = fork();
  int const rank = child == 0 ? 1 : 0;
  alarm(40);
  OK(cudaSetDevice(0));
  OK(cudaFree(nullptr));
  OK(cudaHostRegister(shared, sizeof(page), cudaHostRegisterMapped));
  page* there = nullptr;
  OK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&there), shared, 0));
  auto const wait_until = reinterpret_cast<wait_value>(entry("cuStreamWaitValue32", rank));
  auto const write = reinterpret_cast<write_value>(entry("cuStreamWriteValue32", rank));
  auto const flag_of = [&](int r) {
    return reinterpret_cast<CUdeviceptr>(const_cast<std::uint32_t*>(&there->of[r].flag));
  };
  cudaStream_t stream{};
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::uint32_t* wrong = nullptr;
  OK(cudaMalloc(&wrong, sizeof(*wrong)));
  OK(cudaMemset(wrong, 0, sizeof(*wrong)));
  put<<<1, 1, 0, stream>>>(&there->of[rank], 0);
  OK(cudaStreamSynchronize(stream));
  __sync_synchronize();
  shared->ready[rank] = 1;
  while (shared->ready[1 - rank] == 0) usleep(100);

  constexpr std::uint32_t rounds = 200;
  // two flags a round: the value is there, the value was read
  auto const exchange = [&](std::uint32_t k) {
    put<<<1, 1, 0, stream>>>(&there->of[rank], 1000 * k + rank);
    DRIVER(write(stream, flag_of(rank), 2 * k - 1, 0));
    DRIVER(wait_until(stream, flag_of(1 - rank), 2 * k - 1, CU_STREAM_WAIT_VALUE_GEQ));
    get<<<1, 1, 0, stream>>>(&there->of[1 - rank], 1000 * k + 1 - rank, wrong);
    DRIVER(write(stream, flag_of(rank), 2 * k, 0));
    DRIVER(wait_until(stream, flag_of(1 - rank), 2 * k, CU_STREAM_WAIT_VALUE_GEQ));
  };
  exchange(1);
  OK(cudaStreamSynchronize(stream));
  double const start = seconds();
  for (std::uint32_t k = 2; k <= rounds; ++k) exchange(k);
  OK(cudaStreamSynchronize(stream));
  double const each = (seconds() - start) / (2 * (rounds - 1)) * 1e6;
  std::uint32_t found = 0;
  OK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
  if (rank == 1) {
    shared->wrong[1] = static_cast<int>(found);
    shared->ready[1] = 2;
    for (;;) pause();  // rank 0 kills this process
  }
  while (shared->ready[1] != 2) usleep(100);
  std::printf("{\"fact\": \"ordered by memory operations\", \"processes\": 2, \"wrong\": %u, \"us_a_meeting\": %.1f}\n",
              found + static_cast<std::uint32_t>(shared->wrong[1]), each);
  std::fflush(stdout);

  // a killed peer: the stream waits for a flag that nobody writes until the host writes a poison value
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  put<<<1, 1, 0, stream>>>(&there->of[0], 7);
  DRIVER(wait_until(stream, flag_of(1), 2 * rounds + 1, CU_STREAM_WAIT_VALUE_GEQ));
  get<<<1, 1, 0, stream>>>(&there->of[1], 1000 * rounds + 1, wrong);
  usleep(300000);
  cudaError_t const while_waiting = cudaStreamQuery(stream);
  double const poisoned = seconds();
  shared->of[1].flag = 0x7fffffffU;  // GEQ compares the difference as a signed number: above all rounds
  __sync_synchronize();
  cudaError_t after = cudaErrorNotReady;
  while (after == cudaErrorNotReady && seconds() - poisoned < 10) after = cudaStreamQuery(stream);
  std::printf("{\"fact\": \"a killed peer, then a poison value of the host\", \"while_waiting\": \"%s\", \"after\": \"%s\", "
              "\"us_until_released\": %.1f}\n",
              cudaGetErrorName(while_waiting), cudaGetErrorName(after), (seconds() - poisoned) * 1e6);
  return found != 0 || while_waiting != cudaErrorNotReady || after != cudaSuccess;
}
