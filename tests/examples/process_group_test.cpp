// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The transport of examples/torch_ddp keeps to what all of them do, over gloo.

#include "examples/torch_ddp/process_group.hpp"
#include "tests/transport/suite.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace globalq_test {

/// Threads that form a gloo group, as processes do. They wait for each other before and after the body: gloo ends the
/// connecting of others with an exception when a worker that needs nothing of them leaves first.
struct process_group_harness {
  using endpoint = globalq_ddp::process_group;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    auto const store = c10::make_intrusive<c10d::HashStore>();
    std::barrier together(workers);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank)
      threads.emplace_back([&, rank] {
        auto const how = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds{30});
        how->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
        endpoint self(c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, workers, how), settings);
        together.arrive_and_wait();
        body(self);
        together.arrive_and_wait();
      });
    for (std::thread& t : threads) t.join();
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(process_group, transport_suite, process_group_harness);

TEST(ProcessGroup, a_broken_transport_says_so_at_every_later_use) {
  process_group_harness::run(2, impatient, [](auto& t) {
    if (t.rank() != 0) return;
    std::byte missing{};
    auto const wait = [&] {
      auto incoming = t.recv_async(1, std::span{&missing, 1});
      t.wait(incoming);
    };
    EXPECT_NE(transport_failure(wait).find("expected 1 bytes from rank 1"), std::string::npos);
    auto const start = std::chrono::steady_clock::now();
    EXPECT_NE(transport_failure(wait).find("the transport is broken since: expected 1 bytes from rank 1"),
              std::string::npos);
    EXPECT_NE(transport_failure([&] {
                t.send_async(1, std::span<std::byte const>{&missing, 1});
              }).find("broken"),
              std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - start, impatient.deadline);
  });
}

TEST(ProcessGroup, there_are_no_messages_to_oneself_or_to_nobody) {
  process_group_harness::run(2, patient, [](auto& t) {
    std::byte one{};
    for (int const peer : {-1, t.rank(), 2})
      EXPECT_THROW(t.send_async(peer, std::span<std::byte const>{&one, 1}), gq::configuration_error);
    gq::transport::barrier(t);  // and the transport is whole
  });
}

}  // namespace globalq_test
