// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::shared_memory, on however many processes the launcher started.

#include "globalq/transport/shared_memory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "suite.hpp"
#include "tests/support/allocations.hpp"

namespace globalq_test {
namespace shared_memory_mpi_test {

using gq::transport::shared_memory;
using gq::transport::sharing;

static_assert(gq::Transport<shared_memory>);
static_assert(gq::transport::OwnAllgather<shared_memory>);
static_assert(gq::transport::OwnAllreduceSum<shared_memory, std::int8_t>);
static_assert(gq::transport::OwnAllreduceSum<shared_memory, float>);
static_assert(gq::transport::OwnBytesSent<shared_memory>);
static_assert(gq::transport::OwnName<shared_memory>);
static_assert(gq::transport::OwnExecution<shared_memory>);
static_assert(gq::transport::OwnRetain<shared_memory>);
static_assert(!std::copy_constructible<shared_memory>);

int processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

template <sharing const& within_node>
struct harness {
  using endpoint = shared_memory;
  static std::vector<int> worlds() { return {processes()}; }
  template <class Body>
  static void run(int, options const& settings, Body const& body) {
    shared_memory workers{MPI_COMM_WORLD, settings, within_node};
    body(workers);
    MPI_Barrier(MPI_COMM_WORLD);
  }
};

constexpr sharing usual{};
INSTANTIATE_TYPED_TEST_SUITE_P(shared_memory, transport_suite, harness<usual>);

/// Long messages are announced where they may be, streamed elsewhere, and hardly one fits its ring.
constexpr sharing small_rings{.ring_bytes = 256};
INSTANTIATE_TYPED_TEST_SUITE_P(shared_memory_of_small_rings, transport_suite, harness<small_rings>);

constexpr sharing two_copies{.single_copy = false};
INSTANTIATE_TYPED_TEST_SUITE_P(shared_memory_of_two_copies, transport_suite, harness<two_copies>);

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

int right_of(shared_memory const& t) { return (t.rank() + 1) % t.size(); }
int left_of(shared_memory const& t) { return (t.rank() + t.size() - 1) % t.size(); }

TEST(SharedMemory, has_a_name_and_reaches_everybody) {
  setenv("GLOBALQ_SHARED_MEMORY", "off", 1);  // is for transport::mpi
  shared_memory t{MPI_COMM_WORLD, patient, {.enabled = false}};
  unsetenv("GLOBALQ_SHARED_MEMORY");
  EXPECT_EQ(t.name(), "shared_memory");
  EXPECT_EQ(t.shares_memory(), t.size() - 1);
}

TEST(SharedMemory, refuses_several_nodes_on_every_worker) {
  if (processes() < 3) GTEST_SKIP() << "needs three processes";
  try {
    shared_memory t{MPI_COMM_WORLD, patient, {.group = 2}};
    ADD_FAILURE() << "groups of two are not all of " << t.size();
  } catch (gq::configuration_error const& problem) {
    std::string const text = problem.what();
    EXPECT_TRUE(contains(text, "globalq: transport::shared_memory: the " + std::to_string(processes()) +
                                   " processes do not all share memory: 2 from rank 0 on "))
        << text;
    EXPECT_TRUE(contains(text, " from rank 2 on ")) << text;
    EXPECT_TRUE(contains(text, "; use transport::mpi, which shares memory within each node")) << text;
  }
}

TEST(SharedMemory, refuses_on_every_worker_when_the_system_has_no_room) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  try {
    shared_memory t{MPI_COMM_WORLD, patient, {.ring_bytes = std::size_t{1} << 50}};
    ADD_FAILURE() << "a pebibyte was found";
  } catch (gq::configuration_error const& problem) {
    std::string const text = problem.what();
    EXPECT_TRUE(contains(text, "bytes of shared memory: ")) << text;
    EXPECT_TRUE(contains(text, "; enlarge /dev/shm")) << text;
  }
  // transport::mpi does without
  gq::transport::mpi t{
      MPI_COMM_WORLD, patient, gq::transport::mpi::largest_piece, {.ring_bytes = std::size_t{1} << 50}};
  EXPECT_EQ(t.shares_memory(), 0);
  gq::transport::barrier(t);
}

TEST(SharedMemory, very_long_messages_arrive_whole) {
  if (processes() > 4) GTEST_SKIP() << "up to four processes";
  constexpr std::size_t bytes = (std::size_t{64} << 20) + 13;
  std::vector<std::byte> in(bytes), out, expected;  // a pattern of this length takes longer than its transfer
  for (bool const single_copy : {true, false}) {
    shared_memory t{MPI_COMM_WORLD, patient, {.single_copy = single_copy}};
    if (out.empty()) {
      out = pattern(t.rank(), right_of(t), bytes);
      expected = pattern(left_of(t), t.rank(), bytes);
    }
    for (bool const sender_first : {true, false}) {
      std::fill(in.begin(), in.end(), std::byte{});
      auto incoming = t.recv_async(left_of(t), in);
      auto outgoing = t.send_async(right_of(t), out);
      t.wait(sender_first ? outgoing : incoming);
      t.wait(sender_first ? incoming : outgoing);
      EXPECT_TRUE(in == expected);
    }
  }
}

TEST(SharedMemory, full_rings_in_a_cycle_are_no_deadlock) {
  for (bool const single_copy : {true, false}) {
    shared_memory t{MPI_COMM_WORLD, patient, {.single_copy = single_copy, .ring_bytes = 256}};
    if (t.size() == 1) continue;
    constexpr std::size_t messages = 20;
    std::vector<shared_memory::request> sends, receives;
    std::vector<std::vector<std::byte>> out, in;
    for (std::size_t i = 0; i < messages; ++i) {
      std::size_t const bytes = i % 3 == 0 ? 40 : i * 1000;
      out.push_back(pattern(t.rank(), static_cast<int>(i), bytes));
      in.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < messages; ++i) sends.push_back(t.send_async(right_of(t), out[i]));
    for (std::size_t i = 0; i < messages; ++i) receives.push_back(t.recv_async(left_of(t), in[i]));
    for (std::size_t i = messages; i-- > 0;) t.wait(t.rank() % 2 == 0 ? sends[i] : receives[i]);
    for (std::size_t i = 0; i < messages; ++i) t.wait(t.rank() % 2 == 0 ? receives[i] : sends[i]);
    for (std::size_t i = 0; i < messages; ++i) {
      EXPECT_EQ(in[i], pattern(left_of(t), static_cast<int>(i), in[i].size())) << "message " << i;
    }
  }
}

TEST(SharedMemory, short_sends_do_not_wait_for_their_receiver) {
  shared_memory t{MPI_COMM_WORLD, impatient};
  std::vector<std::byte> out(1000), in(1000);
  if (t.size() == 1) return;
  for (int i = 0; i < 3; ++i) {
    auto outgoing = t.send_async(right_of(t), out);
    EXPECT_NO_THROW(t.wait(outgoing));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 3; ++i) {
    auto incoming = t.recv_async(left_of(t), in);
    EXPECT_NO_THROW(t.wait(incoming));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(SharedMemory, a_long_send_that_nobody_receives_ends_by_its_deadline) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  for (bool const single_copy : {true, false}) {
    shared_memory t{MPI_COMM_WORLD, impatient, {.single_copy = single_copy}};
    if (t.rank() == 0) {
      std::vector<std::byte> out(std::size_t{1} << 20);
      auto outgoing = t.send_async(1, out);
      auto const text = transport_failure([&] { t.wait(outgoing); });
      EXPECT_EQ(text,
                "globalq: send: rank 0 of " + std::to_string(t.size()) +
                    ": waited 0.3 s for rank 1 to receive 1048576 bytes; let every worker make the same "
                    "calls in the same order, or raise options::deadline");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (t.rank() == 1) {  // the bytes that were announced are gone: they must not count as received
      std::vector<std::byte> in(std::size_t{1} << 20);
      auto const text = transport_failure([&] {
        auto incoming = t.recv_async(0, in);
        t.wait(incoming);
      });
      EXPECT_TRUE(contains(text, "rank 0 failed: globalq: send: rank 0 of ")) << text;
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(SharedMemory, a_worker_that_leaves_is_missed_at_once) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  auto const start = std::chrono::steady_clock::now();
  {
    shared_memory t{MPI_COMM_WORLD, patient};
    if (t.rank() == 0) {
      std::byte first{}, second{};
      auto incoming = t.recv_async(1, std::span{&first, 1});
      auto missing = t.recv_async(1, std::span{&second, 1});
      t.wait(incoming);  // was sent before it left
      EXPECT_EQ(first, std::byte{7});
      auto const text = transport_failure([&] { t.wait(missing); });
      EXPECT_EQ(text, "globalq: recv: rank 0 of " + std::to_string(t.size()) +
                          ": rank 1 destroyed its transport and did not send 1 bytes; let every worker make "
                          "the same calls in the same order");
    } else if (t.rank() == 1) {
      std::byte const last{7};
      auto outgoing = t.send_async(0, std::span{&last, 1});
      t.wait(outgoing);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, patient.deadline / 2);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(SharedMemory, allgathers_of_different_sizes_are_an_error_on_every_worker) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  for (std::size_t const bytes : counts{0, 64, 100000}) {
    shared_memory t{MPI_COMM_WORLD, patient};
    std::size_t const own = bytes + (t.rank() == 1 ? 1 : 0);
    std::vector<std::byte> mine(own), all(own * static_cast<std::size_t>(t.size()));
    auto const text = transport_failure([&] { t.allgather(mine, all); });
    int const other = t.rank() == 1 ? 0 : 1;
    EXPECT_TRUE(contains(text, "allgather: rank ") && contains(text, "rank " + std::to_string(other)) &&
                contains(text, std::to_string(bytes + (other == 1 ? 1 : 0))))
        << text;
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(SharedMemory, a_missing_worker_of_an_allgather_is_named) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  shared_memory t{MPI_COMM_WORLD, impatient};
  if (t.rank() != 1) {
    std::vector<std::byte> all(64 * static_cast<std::size_t>(t.size()));
    auto const text = transport_failure([&] { t.allgather(std::span{all}.first(64), all); });
    EXPECT_TRUE(contains(text, "waited 0.3 s for rank 1 to take part")) << text;
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(SharedMemory, buffers_are_never_retained) {
  shared_memory t{MPI_COMM_WORLD, impatient};
  auto buffers = std::make_shared<std::vector<std::byte>>(std::size_t{1} << 20);
  if (t.size() > 1) {
    auto const outgoing = t.send_async(right_of(t), *buffers);
    t.retain(buffers);
    EXPECT_EQ(buffers.use_count(), 1);  // whoever still reads them finds the failure, and drops what it read
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(SharedMemory, transports_can_be_made_one_after_the_other_and_side_by_side) {
  for (int turn = 0; turn < 20; ++turn) {
    shared_memory first{MPI_COMM_WORLD, patient}, second{MPI_COMM_WORLD, patient};
    gq::transport::barrier(second);
    std::vector<int> ranks(static_cast<std::size_t>(first.size()));
    gq::transport::allgather_value(first, first.rank(), std::span{ranks});
    for (int rank = 0; rank < first.size(); ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
  }
}

TEST(SharedMemory, messages_allocate_nothing_after_the_first) {
  shared_memory t{MPI_COMM_WORLD, patient};
  std::vector<std::byte> out(300000), in(300000), few(64),
      few_of_all(64 * static_cast<std::size_t>(t.size()));
  std::vector<std::byte> many(5000), many_of_all(5000 * static_cast<std::size_t>(t.size()));
  auto const talk = [&] {
    if (t.size() == 1) return;
    for (std::size_t const bytes : counts{0, 40, 5000, 300000}) {
      auto incoming = t.recv_async(left_of(t), std::span{in}.first(bytes));
      auto outgoing = t.send_async(right_of(t), std::span<std::byte const>{out}.first(bytes));
      t.wait(incoming);
      t.wait(outgoing);
    }
    t.allgather(few, few_of_all);
    t.allgather(many, many_of_all);
    gq::transport::barrier(t);
  };
  talk();
  auto const before = support::allocations.load();
  for (int i = 0; i < 100; ++i) talk();
  EXPECT_EQ(support::allocations.load(), before);
}

}  // namespace shared_memory_mpi_test

}  // namespace globalq_test
