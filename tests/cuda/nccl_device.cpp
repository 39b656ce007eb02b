// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::nccl on GPUs: one rank on each, and several on one where NCCL allows it (2.30 and later,
///        with NCCL_MULTI_RANK_GPU_ENABLE=1). Says so and returns 77 where there is no GPU.

#include "nccl_suite.hpp"

#include <cstdio>
#include <cstdlib>

namespace globalq_test {

std::vector<int> worlds() {
  static std::vector<int> const sizes = [] {
    int devices = 0, version = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    ncclGetVersion(&version);
    char const* const several = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool const shared =
        version >= NCCL_VERSION(2, 30, 0) && several != nullptr && std::string_view{several} == "1";
    int const most = shared ? std::max(devices, 2) : devices;  // NCCL says that two on a GPU should work
    std::vector<int> made;
    for (int ranks = 1; ranks <= most; ++ranks) made.push_back(ranks);
    std::printf("NCCL %d, %d devices: worlds of 1 to %d ranks%s\n", version, devices, most,
                most > 1 ? "" : "; more need more devices, or NCCL 2.30 with NCCL_MULTI_RANK_GPU_ENABLE=1");
    return made;
  }();
  return sizes;
}

std::chrono::nanoseconds shortest_deadline() { return std::chrono::seconds{10}; }

namespace {

TEST(NcclDevice, a_graph_replays_what_was_captured) {
  alone([](nccl& t, arena& memory) {
    constexpr std::size_t values = 1000;
    auto const of = [&] { return memory.take(values * sizeof(std::int32_t)); };
    auto const first = of(), second = of();
    for (auto const each : {first, second})
      expect_success(cudaMemsetAsync(each.data(), 0, each.size(), t.stream()));
    auto const all_of_it = [&] {
      auto incoming = t.recv_async(0, second);
      auto outgoing = t.send_async(0, first);
      t.wait(incoming);
      t.wait(outgoing);
      t.allreduce_sum(std::span{reinterpret_cast<std::int32_t*>(second.data()), values});
      t.allgather(second, first);
    };
    all_of_it();  // connects
    t.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    expect_success(cudaStreamBeginCapture(t.stream(), cudaStreamCaptureModeThreadLocal));
    std::byte host{};
    EXPECT_THROW(t.allgather(std::span{&host, 1}, std::span{&host, 1}), gq::configuration_error);
    EXPECT_THROW(t.synchronize(), gq::configuration_error);
    all_of_it();
    expect_success(cudaStreamEndCapture(t.stream(), &graph));
    expect_success(cudaGraphInstantiate(&runnable, graph, 0));
    for (int replay = 0; replay < 3; ++replay) {
      auto const out = pattern(replay, 0, first.size());
      std::vector<std::byte> in(first.size());
      expect_success(
          cudaMemcpyAsync(first.data(), out.data(), out.size(), cudaMemcpyHostToDevice, t.stream()));
      expect_success(cudaMemsetAsync(second.data(), 0, second.size(), t.stream()));
      expect_success(cudaGraphLaunch(runnable, t.stream()));
      expect_success(
          cudaMemcpyAsync(in.data(), second.data(), in.size(), cudaMemcpyDeviceToHost, t.stream()));
      t.synchronize();
      EXPECT_EQ(in, out);
    }
    expect_success(cudaGraphExecDestroy(runnable));
    expect_success(cudaGraphDestroy(graph));
  });
}

}  // namespace
}  // namespace globalq_test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  auto const code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("nccl_device: skipped, no GPU was found (%s)\n", cudaGetErrorString(code));
    return 77;
  }
  // NCCL does not compare sizes, and says so.
  ::testing::GTEST_FLAG(filter) += ":-*a_receive_of_another_size_is_an_error";
  return RUN_ALL_TESTS();
}
