// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::nccl on the emulated CUDA and NCCL: many ranks, and failures, without a GPU.

#include "nccl_suite.hpp"

#include <cuda_emulator/nccl.hpp>

#include <barrier>

namespace globalq_test {

std::vector<int> worlds() { return {1, 2, 3, 4, 5, 8}; }
std::chrono::nanoseconds shortest_deadline() { return {}; }

namespace {

bool may_block() { return gq::transport::detail::splits_share_abort(); }

/// What an action throws, which takes as long as the deadline.
template <class Action>
std::string failure_after_the_deadline(Action const& action) {
  auto const start = std::chrono::steady_clock::now();
  auto const text = transport_failure(action);
  std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GE(seconds.count(), 0.299);
  EXPECT_LT(seconds.count(), 1.3);
  return text;
}

TEST(NcclEmulated, a_step_of_a_schedule_is_one_group) {
  struct expected {
    char const* name;
    std::size_t groups_of_all;
  };
  constexpr int n = 4;
  for (expected const each : {expected{"ring", 2 * (n - 1) * n}, expected{"sra", 2 * n},
                              expected{"allgather", n}, expected{"native", n}}) {
    auto const before = emulator::nccl_launches();
    nccl_harness::run(n, patient, [&](staged& t) {
      gq::schedule::any const schedule{each.name};
      sum_of_int32 numbers{t.rank(), 4096};
      gq::frame_pool frames;
      schedule(t, numbers, gq::partition(4096, schedule.parts(n), 256, 0), frames);
    });
    EXPECT_EQ(emulator::nccl_launches() - before, each.groups_of_all + n) << each.name;  // n connected
  }
}

TEST(NcclEmulated, nccl_starts_a_thread_for_no_operation) {
  auto const all = emulator::nccl_launches(), without = emulator::nccl_launches_without_blocking();
  nccl_harness::run(3, patient, [](staged& self) {
    gq::transport::barrier(self);
    std::vector<int> ranks(3);
    gq::transport::allgather_value(self, self.rank(), std::span{ranks});
    self.allreduce_sum(std::span{ranks});
  });
  auto const launched = emulator::nccl_launches() - all;
  EXPECT_GT(launched, 0U);
  EXPECT_EQ(emulator::nccl_launches_without_blocking() - without, may_block() ? 0U : launched);
}

TEST(NcclEmulated, a_wait_does_not_pause_the_host) {
  nccl_harness::run(2, patient, [](staged& self) {
    nccl& t = self.inner();
    auto const bytes = self.memory().take(64);
    static std::atomic<bool> waited;
    if (t.rank() == 0) waited = false;
    gq::transport::barrier(t);
    t.synchronize();
    if (t.rank() == 0) {
      auto incoming = t.recv_async(1, bytes);
      t.wait(incoming);
      waited = true;
    } else {
      while (!waited) std::this_thread::yield();  // for ever, if rank 0 waited for the message
      auto outgoing = t.send_async(0, bytes);
      t.wait(outgoing);
    }
    t.synchronize();
    self.memory().give_back();
  });
}

/// Copies host memory to a worker's memory or back, on its stream.
void enqueue_copy(nccl const& t, void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
  expect_success(cudaMemcpyAsync(to, from, bytes, kind, t.stream()));
}

// Worker 0 sends, and makes its stream wait for worker 1 to have received: without overlap that takes for ever.
TEST(NcclEmulated, a_long_message_overlaps_with_the_work_between_its_post_and_its_wait) {
  for (std::size_t const bytes : {nccl::overlap_bytes, nccl::overlap_bytes - 1}) {
    cudaEvent_t received = nullptr;
    expect_success(cudaEventCreateWithFlags(&received, cudaEventDisableTiming));
    std::barrier together(2);
    nccl_harness::run(2, impatient, [&](staged& self) {
      nccl& t = self.inner();
      auto const memory = self.memory().take(bytes);
      auto const sent = pattern(0, 0, bytes), before = pattern(1, 1, bytes);
      std::byte* const pinned = self.memory().pinned(memory);
      std::memcpy(pinned, (t.rank() == 0 ? sent : before).data(), bytes);
      enqueue_copy(t, memory.data(), pinned, bytes, cudaMemcpyHostToDevice);
      if (t.rank() == 0) {
        auto outgoing = t.send_async(1, memory);
        together.arrive_and_wait();
        expect_success(cudaStreamWaitEvent(t.stream(), received, 0));
        t.wait(outgoing);
      } else {
        auto const spare = self.memory().take(bytes);
        std::byte* const read = self.memory().pinned(spare);
        enqueue_copy(t, read, memory.data(), bytes, cudaMemcpyDeviceToHost);  // before it is received
        auto incoming = t.recv_async(0, memory);
        t.wait(incoming);
        expect_success(cudaEventRecord(received, t.stream()));
        together.arrive_and_wait();
        enqueue_copy(t, pinned, memory.data(), bytes, cudaMemcpyDeviceToHost);
        if (bytes < nccl::overlap_bytes) return;
        t.synchronize();
        EXPECT_EQ(std::memcmp(read, before.data(), bytes), 0);
        EXPECT_EQ(std::memcmp(pinned, sent.data(), bytes), 0);
        return;
      }
      if (bytes >= nccl::overlap_bytes)
        t.synchronize();
      else
        EXPECT_NE(transport_failure([&] { t.synchronize(); }), "");
    });
    expect_success(cudaEventDestroy(received));
  }
}

// The caller's stream and the transport's own carry groups in turn: a short message, then a long one posted with it, and so on.
TEST(NcclEmulated, short_and_long_messages_arrive_in_order) {
  nccl_harness::run(3, patient, [](staged& self) {
    std::vector<std::size_t> const sizes{64, nccl::overlap_bytes, 100, nccl::overlap_bytes + 3, 0, 7};
    int const next = (self.rank() + 1) % 3, from = (self.rank() + 2) % 3;
    nccl& t = self.inner();
    std::vector<std::span<std::byte>> in;
    std::vector<nccl::request> requests;
    for (std::size_t const bytes : sizes) {
      in.push_back(self.memory().take(bytes));
      requests.push_back(t.recv_async(from, in.back()));
    }
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      auto const out = self.memory().take(sizes[k]);
      auto const bytes = pattern(self.rank(), static_cast<int>(k), sizes[k]);
      if (!out.empty()) std::memcpy(self.memory().pinned(out), bytes.data(), out.size());
      enqueue_copy(t, out.data(), self.memory().pinned(out), out.size(), cudaMemcpyHostToDevice);
      requests.push_back(t.send_async(next, out));
    }
    for (auto& each : requests) t.wait(each);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      auto const bytes = pattern(from, static_cast<int>(k), sizes[k]);
      enqueue_copy(t, self.memory().pinned(in[k]), in[k].data(), sizes[k], cudaMemcpyDeviceToHost);
      t.synchronize();
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), self.memory().pinned(in[k]))) << k;
    }
  });
}

// The bytes of a send are written after the receive of its group was posted. A graph takes both streams along.
TEST(NcclEmulated, a_group_of_long_messages_waits_for_the_last_post) {
  nccl_harness::run(2, patient, [](staged& self) {
    nccl& t = self.inner();
    auto const out = self.memory().take(nccl::overlap_bytes), in = self.memory().take(nccl::overlap_bytes);
    std::byte *const to_send = self.memory().pinned(out), *const received = self.memory().pinned(in);
    auto const exchange = [&] {
      auto incoming = t.recv_async(1 - t.rank(), in);
      enqueue_copy(t, out.data(), to_send, out.size(), cudaMemcpyHostToDevice);
      auto outgoing = t.send_async(1 - t.rank(), out);
      t.wait(incoming);
      t.wait(outgoing);
      enqueue_copy(t, received, in.data(), in.size(), cudaMemcpyDeviceToHost);
    };
    auto const expect = [&](int message, auto const& action) {
      auto const bytes = pattern(t.rank(), message, out.size()),
                 theirs = pattern(1 - t.rank(), message, out.size());
      std::memcpy(to_send, bytes.data(), bytes.size());
      action();
      t.synchronize();
      EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), received)) << message;
    };
    for (int message = 2; message < 12; ++message) expect(message, exchange);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    expect_success(cudaStreamBeginCapture(t.stream(), cudaStreamCaptureModeThreadLocal));
    exchange();
    expect_success(cudaStreamEndCapture(t.stream(), &graph));  // fails if a stream has not joined
    expect_success(cudaGraphInstantiate(&runnable, graph, 0));
    expect(1, [&] { expect_success(cudaGraphLaunch(runnable, t.stream())); });
    expect_success(cudaGraphExecDestroy(runnable));
    expect_success(cudaGraphDestroy(graph));
  });
}

TEST(NcclEmulated, the_messages_of_a_chunk_have_16_mib_together) {
  for (int const workers : {1, 3, 8})
    nccl_harness::run(workers, patient, [](staged& self) {
      EXPECT_EQ(self.inner().chunk_bytes(), (std::size_t{16} << 20) / static_cast<std::size_t>(self.size()));
    });
}

TEST(NcclEmulated, a_missing_message_is_told_with_its_rank_and_bytes) {
  nccl_harness::run(2, impatient, [](staged& self) {
    if (self.rank() != 0) return;
    nccl& t = self.inner();
    auto const bytes = self.memory().take(64);
    auto const text = transport_failure([&] {
      auto incoming = t.recv_async(1, bytes);
      t.wait(incoming);
      t.synchronize();
    });
    EXPECT_EQ(text,
              "globalq: recv: rank 0 of 2: waited 0.3 s for the stream, where the last work needs rank 1 to "
              "send 64 "
              "bytes; let every worker make the same calls in the same order, or raise options::deadline");
    EXPECT_EQ(t.communicator(), nullptr);
    EXPECT_EQ(cudaStreamQuery(t.stream()), cudaSuccess);  // nothing hangs on it
    EXPECT_EQ(transport_failure([&] { t.synchronize(); }), text);
  });
}

TEST(NcclEmulated, sizes_that_differ_end_by_the_deadline) {
  nccl_harness::run(2, impatient, [](staged& self) {
    std::vector<std::byte> bytes(64);
    auto const text = transport_failure([&] {
      if (self.rank() == 0) {
        auto incoming = self.recv_async(1, bytes);
        self.wait(incoming);
      } else {
        auto outgoing = self.send_async(0, std::span<std::byte const>{bytes}.first(63));
        self.wait(outgoing);
      }
    });
    EXPECT_TRUE(contains(text, "waited 0.3 s")) << text;
  });
}

TEST(NcclEmulated, a_collective_without_all_workers_ends_by_its_deadline) {
  nccl_harness::run(3, impatient, [](staged& self) {
    if (self.rank() == 0) return;
    std::vector<std::byte> all(3 * 64, std::byte{7});
    auto const before = all;
    auto const text =
        failure_after_the_deadline([&] { self.inner().allgather(std::span{all}.first(64), all); });
    EXPECT_EQ(text,
              "globalq: allgather: rank " + std::to_string(self.rank()) +
                  " of 3: waited 0.3 s for ncclAllGather, which needs all workers to take part; let every "
                  "worker make the same calls in the same order, or raise options::deadline");
    EXPECT_EQ(self.inner().communicator(), nullptr);
    EXPECT_EQ(cudaStreamQuery(self.inner().stream()), cudaSuccess);
    EXPECT_EQ(transport_failure([&] { self.inner().synchronize(); }), text);  // and nothing was fired twice
    EXPECT_EQ(all, before);
  });
}

TEST(NcclEmulated, an_error_of_nccl_is_told_with_its_text_and_a_remedy) {
  gq::transport::options const two_seconds{.deadline = std::chrono::seconds{2}};
  nccl_harness::run(2, two_seconds, [](staged& self) {
    if (self.rank() != 0) return;  // and waits for rank 0 to leave as well, as long as it may
    nccl& t = self.inner();
    auto const bytes = self.memory().take(64);
    auto const start = std::chrono::steady_clock::now();
    auto const text = transport_failure([&] {
      auto incoming = t.recv_async(1, bytes);
      t.wait(incoming);
      emulator::break_communicator(t.communicator(), ncclRemoteError);
      t.synchronize();
    });
    EXPECT_EQ(
        text,
        "globalq: recv: rank 0 of 2: ncclGroupEnd: remote process exited or there was a network error (told "
        "by the emulated NCCL), waiting for rank 1 to send 64 bytes; see why another worker ended or the "
        "network "
        "failed, then make new transports on all workers");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{1});
  });
}

TEST(NcclEmulated, an_error_is_found_before_more_is_enqueued) {
  alone([](nccl& t, arena& memory) {
    auto const bytes = memory.take(64);
    emulator::break_communicator(t.communicator(), ncclRemoteError);
    auto const before = emulator::nccl_launches();
    EXPECT_NE(transport_failure([&] {
                t.allreduce_sum(std::span{reinterpret_cast<float*>(bytes.data()), 16});
              }),
              "");
    EXPECT_EQ(emulator::nccl_launches(), before);
  });
}

TEST(NcclEmulated, the_host_never_waits_for_a_stream_that_is_captured) {
  alone([](nccl& t, arena& memory) {
    auto const bytes = memory.take(64);
    std::byte value{};
    cudaGraph_t graph = nullptr;
    expect_success(cudaStreamBeginCapture(t.stream(), cudaStreamCaptureModeThreadLocal));
    auto const text = refusal([&] { t.allgather(std::span{&value, 1}, std::span{&value, 1}); });
    EXPECT_TRUE(contains(text, "globalq: allgather: rank 0 of 1: the host would wait for a stream")) << text;
    EXPECT_TRUE(contains(refusal([&] { t.synchronize(); }), "globalq: synchronize: "));
    t.allgather(bytes, bytes);  // in device memory: only enqueued
    t.allreduce_sum(std::span{reinterpret_cast<float*>(bytes.data()), 16});
    auto incoming = t.recv_async(0, bytes.first(32));
    auto outgoing = t.send_async(0, bytes.last(32));
    t.wait(incoming);
    t.wait(outgoing);
    expect_success(cudaStreamEndCapture(t.stream(), &graph));
    expect_success(cudaGraphDestroy(graph));
    t.synchronize();
    memory.give_back();
  });
}

TEST(NcclEmulated, a_worker_that_never_connects_ends_by_the_deadline) {
  nccl_harness::start(1, [](int, ncclUniqueId const& id, cudaStream_t stream) {
    auto const text = transport_failure([&] { nccl{id, 0, 2, stream, impatient}; });
    EXPECT_EQ(text,
              "globalq: connect: rank 0 of 2: waited 0.3 s for ncclCommInitRankConfig, which needs all "
              "workers to take "
              "part; let every worker make the same calls in the same order, or raise options::deadline");
  });
}

/// A communicator that a test makes by itself.
ncclComm_t raw_communicator(ncclUniqueId const& id, int rank, int size, bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  ncclComm_t made = nullptr;
  auto state = ncclCommInitRankConfig(&made, size, id, rank, &config);
  while (state == ncclInProgress) ncclCommGetAsyncError(made, &state);
  EXPECT_EQ(state, ncclSuccess);
  return made;
}

std::string late(std::string const& call) {
  return "globalq: connect: rank 0 of 2: waited 0.3 s for " + call +
         ", which needs all workers to take part; let every worker make the same calls in the same order, or "
         "raise options::deadline";
}

TEST(NcclEmulated, a_worker_that_goes_while_others_connect_is_an_error_by_the_deadline) {
  for (bool const splits : {false, true})
    nccl_harness::start(2, [&](int rank, ncclUniqueId const& id, cudaStream_t stream) {
      if (rank == 0) {
        bool const waits_for_messages = splits || !may_block();
        EXPECT_EQ(failure_after_the_deadline([&] {
                    nccl{id, rank, 2, stream, impatient};
                  }),
                  late(waits_for_messages ? "ncclGroupEnd" : "ncclCommSplit"));
        return;
      }
      ncclComm_t const made = raw_communicator(id, rank, 2, false);
      ncclComm_t child = nullptr;
      if (splits && may_block()) {
        auto state = gq::transport::detail::split_blocking(made, rank, &child);
        while (state == ncclInProgress) ncclCommGetAsyncError(made, &state);
        EXPECT_EQ(state, ncclSuccess);
        ncclCommAbort(child);
      }
      ncclCommAbort(made);
    });
}

TEST(NcclEmulated, a_communicator_of_the_caller_ends_by_the_deadline_too) {
  for (bool const blocking : {true, false})
    nccl_harness::start(2, [&](int rank, ncclUniqueId const& id, cudaStream_t stream) {
      ncclComm_t const made = raw_communicator(id, rank, 2, blocking);
      if (rank == 1) {
        EXPECT_EQ(ncclCommAbort(made), ncclSuccess);
      } else {
        EXPECT_EQ(failure_after_the_deadline([&] { nccl{made, stream, impatient}; }), late("ncclGroupEnd"));
        EXPECT_EQ(ncclCommDestroy(made), ncclInvalidArgument);  // it was aborted, and freed
      }
    });
}

TEST(NcclEmulated, a_communicator_of_the_caller_is_left_to_the_caller) {
  for (bool const blocking : {true, false})
    nccl_harness::start(3, [&](int rank, ncclUniqueId const& id, cudaStream_t stream) {
      ncclComm_t const made = raw_communicator(id, rank, 3, blocking);
      {
        nccl t{made, stream, patient};
        gq::transport::barrier(t);
        t.synchronize();
      }
      EXPECT_EQ(ncclCommDestroy(made), ncclSuccess);
    });
}

TEST(NcclEmulated, no_communicator_is_left_behind) { EXPECT_EQ(emulator::nccl_communicators(), 0U); }

}  // namespace
}  // namespace globalq_test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // NCCL does not compare sizes, and says so; what happens instead is tested above.
  ::testing::GTEST_FLAG(filter) += ":-*a_receive_of_another_size_is_an_error";
  return RUN_ALL_TESTS();
}
