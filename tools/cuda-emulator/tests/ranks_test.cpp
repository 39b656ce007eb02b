// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The emulated NCCL: ranks that are threads, each on a device of its own, add, gather and exchange values.

#include <cuda_emulator/nccl.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int ranks = 3;
constexpr std::size_t n = 100;

void expect(cudaError_t e) { ASSERT_EQ(e, cudaSuccess) << cudaGetErrorString(e); }
void expect(ncclResult_t e) { ASSERT_EQ(e, ncclSuccess) << ncclGetErrorString(e); }

struct free_device {
  void operator()(int* p) const { expect(cudaFree(p)); }
};
using device_array = std::unique_ptr<int[], free_device>;

device_array on_device(std::vector<int> const& values) {
  int* p = nullptr;
  expect(cudaMalloc(&p, values.size() * sizeof(int)));
  expect(cudaMemcpy(p, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice));
  return device_array(p);
}

std::vector<int> on_host(device_array const& from, std::size_t length) {
  std::vector<int> values(length);
  expect(cudaMemcpy(values.data(), from.get(), length * sizeof(int), cudaMemcpyDeviceToHost));
  return values;
}

struct rank_of_group {
  int rank;
  ncclComm_t communicator;
  cudaStream_t stream;

  int after() const { return (rank + 1) % ranks; }
  int before() const { return (rank + ranks - 1) % ranks; }
};

/// Runs an action as each rank, on threads.
void on_each_rank(std::function<void(rank_of_group const&)> const& action) {
  ncclUniqueId id;
  expect(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      expect(cudaSetDevice(rank));
      rank_of_group r{rank, nullptr, nullptr};
      expect(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
      expect(ncclCommInitRank(&r.communicator, ranks, id, rank));
      action(r);
      expect(ncclCommDestroy(r.communicator));
      expect(cudaStreamDestroy(r.stream));
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace

TEST(Ranks, add_values) {
  on_each_rank([](rank_of_group const& r) {
    auto const from = on_device(std::vector<int>(n, r.rank + 1)), to = on_device(std::vector<int>(n, 0));
    expect(ncclAllReduce(from.get(), to.get(), n, ncclInt32, ncclSum, r.communicator, r.stream));
    expect(cudaStreamSynchronize(r.stream));
    EXPECT_EQ(on_host(to, n), std::vector<int>(n, 1 + 2 + 3));
  });
}

TEST(Ranks, gather_values_in_the_order_of_ranks) {
  on_each_rank([](rank_of_group const& r) {
    auto const from = on_device({r.rank, 10 * r.rank}), to = on_device(std::vector<int>(2 * ranks, -1));
    expect(ncclAllGather(from.get(), to.get(), 2, ncclInt32, r.communicator, r.stream));
    expect(cudaStreamSynchronize(r.stream));
    EXPECT_EQ(on_host(to, 2 * ranks), (std::vector<int>{0, 0, 1, 10, 2, 20}));
  });
}

TEST(Ranks, exchange_values_with_others_of_a_ring) {
  on_each_rank([](rank_of_group const& r) {
    auto const from = on_device(std::vector<int>(n, r.rank)), to = on_device(std::vector<int>(n, -1));
    expect(ncclGroupStart());
    expect(ncclSend(from.get(), n, ncclInt32, r.after(), r.communicator, r.stream));
    expect(ncclRecv(to.get(), n, ncclInt32, r.before(), r.communicator, r.stream));
    expect(ncclGroupEnd());
    expect(cudaStreamSynchronize(r.stream));
    EXPECT_EQ(on_host(to, n), std::vector<int>(n, r.before()));
  });
}

TEST(Ranks, are_counted_with_their_launches) {
  auto const before = emulator::nccl_launches();
  on_each_rank([](rank_of_group const& r) {
    EXPECT_GE(emulator::nccl_communicators(), 1U);
    auto const x = on_device(std::vector<int>(n, 1));
    expect(ncclAllReduce(x.get(), x.get(), n, ncclInt32, ncclSum, r.communicator, r.stream));
    expect(cudaStreamSynchronize(r.stream));
  });
  EXPECT_EQ(emulator::nccl_communicators(), 0U);
  EXPECT_GE(emulator::nccl_launches() - before, std::size_t{ranks});
}

TEST(Ranks, see_an_error_that_a_test_sets) {
  on_each_rank([](rank_of_group const& r) {
    ncclResult_t state = ncclSuccess;
    expect(ncclCommGetAsyncError(r.communicator, &state));
    EXPECT_EQ(state, ncclSuccess);
    if (r.rank != 1) return;
    emulator::break_communicator(r.communicator, ncclRemoteError);
    expect(ncclCommGetAsyncError(r.communicator, &state));
    EXPECT_EQ(state, ncclRemoteError);
  });
}
