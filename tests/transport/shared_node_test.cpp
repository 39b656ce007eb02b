// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of the shared memory itself, with threads in the place of processes: sanitizers see both ends.

#include "globalq/transport/detail/shared_node.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.hpp"

namespace globalq_test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(transport_suite);

namespace {

using gq::transport::detail::shared_node;
using gq::transport::detail::shared_plan;
using gq::transport::detail::shared_transfer;
using gq::transport::detail::wait_result;

constexpr auto alone = [] { return false; };      // no other library needs progress
constexpr auto minute = std::chrono::minutes{1};  // far from any wait that ends well

/// Memory that forked processes share too.
class memory {
 public:
  explicit memory(shared_plan const& plan) : bytes_{plan.bytes()} {
    void* const there = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (there == MAP_FAILED) throw std::bad_alloc{};
    data_ = static_cast<std::byte*>(there);
    shared_node::prepare(data_, plan);
  }
  memory(memory const&) = delete;
  memory& operator=(memory const&) = delete;
  ~memory() { ::munmap(data_, bytes_); }
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

/// Calls `body(node)` on a thread for each of `workers` nodes.
template <class Body>
void run(int workers, std::size_t ring_bytes, bool single_copy, Body const& body) {
  shared_plan const plan{workers, ring_bytes};
  memory const shared{plan};
  std::vector<std::thread> crew;
  for (int rank = 0; rank < workers; ++rank)
    crew.emplace_back([&, rank] {
      shared_node node{shared.data(), plan, rank, single_copy, minute};
      ASSERT_TRUE(node.complete());
      body(node);
    });
  for (auto& each : crew) each.join();
}

TEST(SharedNode, everything_lies_where_it_fits) {
  for (int const workers : {2, 3, 8, 64, 200}) {
    shared_plan const plan{workers};
    EXPECT_EQ(plan.channel_at(0) % 64, 0U);
    EXPECT_EQ(plan.ring_at(0) % 4096, 0U);
    EXPECT_TRUE(std::has_single_bit(plan.ring_bytes()));
    std::size_t const most = workers <= 64 ? 50 : 1000;
    EXPECT_LE(plan.bytes(), most << 20) << workers << " workers";
  }
}

TEST(SharedNode, messages_of_all_sizes_arrive_whatever_the_order_of_waits) {
  for (std::size_t const ring_bytes : counts{256, 4096, 262144})
    for (bool const single_copy : {false, true})
      run(3, ring_bytes, single_copy, [&](shared_node& node) {
        std::vector<std::size_t> const sizes{0,   1,   47,  48,   49,   63,         64,
                                             65,  127, 128, 191,  192,  193,        255,
                                             256, 257, 512, 4095, 4097, ring_bytes, ring_bytes - 64,
                                             0,   1,   2,   30011};
        for (int turn = 0; turn < 3; ++turn) {
          std::vector<std::vector<std::byte>> out, in;
          std::vector<shared_transfer*> transfers;
          std::vector<int> peers;
          for (int peer = 0; peer < node.size(); ++peer)
            for (std::size_t const bytes : sizes) {
              out.push_back(pattern(node.rank(), peer, bytes));
              in.emplace_back(bytes);
            }
          for (std::size_t i = 0; i < in.size(); ++i) {
            int const peer = static_cast<int>(i / sizes.size());
            if (peer == node.rank()) continue;
            transfers.push_back(&node.receive(peer, in[i]));
            transfers.push_back(&node.send(peer, out[i]));
            peers.insert(peers.end(), 2, peer);
          }
          for (std::size_t k = transfers.size(); k-- > 0;) {
            std::size_t const i = turn == 0 ? k : transfers.size() - 1 - k;
            ASSERT_EQ(node.await(*transfers[i], peers[i], minute, alone), wait_result::done);
            node.give_back(*transfers[i]);
          }
          EXPECT_FALSE(node.busy());
          for (std::size_t i = 0; i < in.size(); ++i) {
            int const peer = static_cast<int>(i / sizes.size());
            if (peer != node.rank()) {
              ASSERT_EQ(in[i], pattern(peer, node.rank(), in[i].size()));
            }
          }
        }
      });
}

TEST(SharedNode, a_long_stream_of_messages_never_stalls) {
  for (std::size_t const ring_bytes : counts{256, 512, 2048})
    run(2, ring_bytes, false, [&](shared_node& node) {
      int const peer = 1 - node.rank();
      constexpr std::size_t window = 8;
      std::vector<std::vector<std::byte>> out(window), in(window);
      std::uint32_t state = 1;  // the same sizes on both sides
      for (int turn = 0; turn < 500; ++turn) {
        std::vector<shared_transfer*> transfers;
        for (std::size_t i = 0; i < window; ++i) {
          state = state * 1664525u + 1013904223u;
          std::size_t const bytes = (state >> 24) * (state >> 22 & 3);
          out[i] = pattern(node.rank(), turn % 60, bytes);
          in[i].assign(bytes, std::byte{});
          transfers.push_back(&node.receive(peer, in[i]));
          transfers.push_back(&node.send(peer, out[i]));
        }
        for (auto* each : transfers) {
          ASSERT_EQ(node.await(*each, peer, minute, alone), wait_result::done);
          node.give_back(*each);
        }
        for (std::size_t i = 0; i < window; ++i) ASSERT_EQ(in[i], pattern(peer, turn % 60, in[i].size()));
      }
    });
}

TEST(SharedNode, allgathers_follow_each_other_without_mixing) {
  run(4, 0, true, [](shared_node& node) {
    for (std::uint64_t turn = 0; turn < 2000; ++turn) {
      std::uint64_t const mine = turn * 10 + static_cast<std::uint64_t>(node.rank());
      std::uint64_t all[4] = {};
      int culprit = 0;
      ASSERT_EQ(node.allgather(std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all}),
                               minute, culprit, alone),
                wait_result::done);
      for (std::uint64_t rank = 0; rank < 4; ++rank) ASSERT_EQ(all[rank], turn * 10 + rank);
    }
  });
}

TEST(SharedNode, bytes_of_a_sender_that_failed_do_not_count) {
  std::atomic<int> stage{0};
  run(2, 256, true, [&](shared_node& node) {
    if (node.rank() == 0) {
      std::vector<std::byte> out(std::size_t{1} << 16);
      node.send(1, out);
      node.fail(0, "given up");
      stage = 1;
      while (stage != 2) std::this_thread::yield();
      return;
    }
    while (stage != 1) std::this_thread::yield();
    std::vector<std::byte> in(std::size_t{1} << 16);
    auto& transfer = node.receive(0, in);
    EXPECT_EQ(node.await(transfer, 0, minute, alone), wait_result::failed);
    EXPECT_EQ(node.failed_rank(), 0);
    EXPECT_STREQ(node.failure_text(), "given up");
    node.fail(1, "because of rank 0");
    EXPECT_STREQ(node.failure_text(), "given up");
    stage = 2;
  });
}

TEST(SharedNode, what_arrived_counts_though_its_sender_failed) {
  std::atomic<bool> sent{false};
  run(2, 0, true, [&](shared_node& node) {
    std::vector<std::byte> bytes = pattern(0, 1, 100);
    if (node.rank() == 0) {
      auto& outgoing = node.send(1, bytes);
      EXPECT_EQ(outgoing.state, shared_transfer::progress::done);
      node.fail(0, "later");
      sent = true;
      return;
    }
    while (!sent) std::this_thread::yield();
    std::vector<std::byte> in(100);
    EXPECT_EQ(node.await(node.receive(0, in), 0, minute, alone), wait_result::done);
    EXPECT_EQ(in, bytes);
  });
}

TEST(SharedNode, sizes_that_differ_are_told_to_the_receiver) {
  for (std::size_t const sent : counts{0, 1, 64, 100000}) {
    std::atomic<bool> over{false};
    run(2, 256, true, [&](shared_node& node) {
      std::vector<std::byte> bytes(sent + 1);
      if (node.rank() == 0) {
        node.send(1, std::span{bytes}.first(sent));
        while (!over) node.advance();
        return;
      }
      auto& transfer = node.receive(0, bytes);
      EXPECT_EQ(node.await(transfer, 0, minute, alone), wait_result::mismatch);
      EXPECT_EQ(transfer.peer_bytes, sent);
      over = true;
    });
  }
}

TEST(SharedNode, nobody_waits_for_ever_to_join) {
  shared_plan const plan{2};
  memory const shared{plan};
  shared_node const node{shared.data(), plan, 0, true, std::chrono::milliseconds{50}};
  EXPECT_FALSE(node.complete());
}

/// Runs `body` in a child process, which leaves no trace when it ends.
template <class Body>
pid_t fork_to(Body const& body) {
  ::signal(SIGCHLD, SIG_IGN);
  pid_t const child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

#if defined(__SANITIZE_THREAD__)
#define GLOBALQ_TEST_FORKS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GLOBALQ_TEST_FORKS 0
#endif
#endif
#ifndef GLOBALQ_TEST_FORKS
#define GLOBALQ_TEST_FORKS 1
#endif

#if GLOBALQ_TEST_FORKS
TEST(SharedNode, processes_exchange_messages) {
  for (bool const single_copy : {false, true}) {
    shared_plan const plan{2};
    memory const shared{plan};
    std::size_t const bytes = 1000003;
    auto const turn = [&](int rank) {
      shared_node node{shared.data(), plan, rank, single_copy, minute};
      auto const out = pattern(rank, 1 - rank, bytes);
      std::vector<std::byte> in(bytes);
      auto& incoming = node.receive(1 - rank, in);
      auto& outgoing = node.send(1 - rank, out);
      return node.complete() && node.await(incoming, 1 - rank, minute, alone) == wait_result::done &&
             node.await(outgoing, 1 - rank, minute, alone) == wait_result::done &&
             in == pattern(1 - rank, rank, bytes);
    };
    // The child's verdict comes back in the memory that it shares with its parent.
    shared_plan const verdict_plan{1};
    memory const verdict{verdict_plan};
    fork_to([&] { *reinterpret_cast<volatile char*>(verdict.data()) = turn(1) ? 1 : 2; });
    EXPECT_TRUE(turn(0));
    auto const until = std::chrono::steady_clock::now() + minute;
    while (*reinterpret_cast<volatile char*>(verdict.data()) == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    EXPECT_EQ(*reinterpret_cast<volatile char*>(verdict.data()), 1);
  }
}

TEST(SharedNode, a_process_that_died_is_missed_long_before_the_deadline) {
  auto const start = std::chrono::steady_clock::now();
  shared_plan const plan{2};
  memory const shared{plan};
  fork_to([&] {
    auto* const node = new shared_node{shared.data(), plan, 1, true, minute};  // dies without leaving
    std::byte const last{7};
    node->send(0, std::span{&last, 1});
  });
  shared_node node{shared.data(), plan, 0, true, minute};
  ASSERT_TRUE(node.complete());
  std::byte first{}, second{};
  auto& incoming = node.receive(1, std::span{&first, 1});
  auto& missing = node.receive(1, std::span{&second, 1});
  EXPECT_EQ(node.await(incoming, 1, minute, alone), wait_result::done);  // was sent before it died
  EXPECT_EQ(first, std::byte{7});
  EXPECT_EQ(node.await(missing, 1, minute, alone), wait_result::died);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
}

TEST(SharedNode, a_sender_that_died_in_the_middle_of_a_message_is_missed) {
  for (bool const single_copy : {false, true}) {
    shared_plan const plan{2, 4096};
    memory const shared{plan};
    fork_to([&] {
      auto* const node = new shared_node{shared.data(), plan, 1, single_copy, minute};
      std::vector<std::byte> bytes(100000);
      node->send(0, bytes);
    });
    shared_node node{shared.data(), plan, 0, single_copy, minute};
    ASSERT_TRUE(node.complete());
    std::vector<std::byte> in(100000);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // let it die
    auto const how = node.await(node.receive(1, in), 1, minute, alone);
    EXPECT_TRUE(how == wait_result::died || how == wait_result::unreadable) << static_cast<int>(how);
  }
}
#endif

}  // namespace
}  // namespace globalq_test
