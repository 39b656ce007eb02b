// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::mpi, on however many processes the launcher started.

#include "globalq/transport/mpi.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "globalq/transport/detail/mpi_device.hpp"
#include "suite.hpp"

namespace globalq_test {
namespace mpi_test {

using gq::transport::mpi;
using gq::transport::sharing;

static_assert(gq::Transport<mpi>);
static_assert(gq::transport::OwnAllgather<mpi>);
static_assert(gq::transport::OwnAllreduceSum<mpi, std::int8_t>);
static_assert(gq::transport::OwnAllreduceSum<mpi, std::int16_t>);
static_assert(gq::transport::OwnAllreduceSum<mpi, std::int32_t>);
static_assert(gq::transport::OwnAllreduceSum<mpi, float>);
static_assert(gq::transport::OwnBytesSent<mpi>);
static_assert(gq::transport::OwnName<mpi>);
static_assert(gq::transport::OwnExecution<mpi>);
static_assert(gq::transport::OwnRetain<mpi>);
static_assert(!std::copy_constructible<mpi>);

int processes() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

struct mpi_harness {
  using endpoint = mpi;
  static std::vector<int> worlds() { return {processes()}; }
  template <class Body>
  static void run(int, options const& settings, Body const& body) {
    mpi workers{MPI_COMM_WORLD, settings};
    body(workers);
    MPI_Barrier(MPI_COMM_WORLD);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(mpi, transport_suite, mpi_harness);

/// No shared memory.
constexpr sharing nothing{.enabled = false};

template <sharing const& within_node>
struct mpi_harness_with : mpi_harness {
  template <class Body>
  static void run(int, options const& settings, Body const& body) {
    mpi workers{MPI_COMM_WORLD, settings, mpi::largest_piece, within_node};
    body(workers);
    MPI_Barrier(MPI_COMM_WORLD);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(mpi_alone, transport_suite, mpi_harness_with<nothing>);

/// Two workers a node, rings that are soon full, and every message through them.
constexpr sharing pairs{.group = 2, .single_copy = false, .ring_bytes = 1024};
INSTANTIATE_TYPED_TEST_SUITE_P(mpi_of_several_nodes, transport_suite, mpi_harness_with<pairs>);

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

TEST(Mpi, refuses_what_cannot_work) {
  EXPECT_THROW(mpi{MPI_COMM_NULL}, gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {.deadline = std::chrono::seconds{0}}}), gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {}, 0}), gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {}, mpi::largest_piece + 1}), gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {}, 1, {.group = -1}}), gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {}, 1, {.ring_bytes = 128}}), gq::configuration_error);
  EXPECT_THROW((mpi{MPI_COMM_WORLD, {}, 1, {.ring_bytes = 1000}}), gq::configuration_error);
  mpi t{MPI_COMM_WORLD};
  std::byte byte{};
  EXPECT_THROW(static_cast<void>(t.send_async(t.size(), std::span{&byte, 1})), gq::configuration_error);
  EXPECT_THROW(static_cast<void>(t.recv_async(-1, std::span{&byte, 1})), gq::configuration_error);
}

TEST(Mpi, has_a_name_and_an_execution_space) {
  mpi t{MPI_COMM_WORLD};
  EXPECT_EQ(t.name(), "mpi");
  int sum = 0;
  Kokkos::parallel_reduce(
      Kokkos::RangePolicy{t.execution(), 0, 100}, KOKKOS_LAMBDA(int i, int& part) { part += i; }, sum);
  EXPECT_EQ(sum, 4950);
}

TEST(Mpi, its_messages_do_not_mix_with_the_callers) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  mpi t{MPI_COMM_WORLD, patient};
  int ours = t.rank(), theirs = 100 + t.rank(), from_ours = -1, from_theirs = -1;
  int const next = (t.rank() + 1) % t.size();
  int const previous = (t.rank() - 1 + t.size()) % t.size();
  auto outgoing = t.send_async(next, std::as_bytes(std::span{&ours, 1}));
  MPI_Sendrecv(&theirs, 1, MPI_INT, next, 0, &from_theirs, 1, MPI_INT, previous, MPI_ANY_TAG, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  auto incoming = t.recv_async(previous, std::as_writable_bytes(std::span{&from_ours, 1}));
  t.wait(incoming);
  t.wait(outgoing);
  EXPECT_EQ(from_ours, previous);
  EXPECT_EQ(from_theirs, 100 + previous);
}

TEST(Mpi, workers_of_a_node_share_memory_unless_told_otherwise) {
  int const others = processes() - 1;
  EXPECT_EQ((mpi{MPI_COMM_WORLD}.shares_memory()), others);
  EXPECT_EQ((mpi{MPI_COMM_WORLD, {}, mpi::largest_piece, nothing}.shares_memory()), 0);
  EXPECT_EQ((mpi{MPI_COMM_WORLD, {}, mpi::largest_piece, {.group = 1}}.shares_memory()), 0);
  mpi const t{MPI_COMM_WORLD, {}, mpi::largest_piece, pairs};
  bool const alone = t.rank() == others && others % 2 == 0;
  EXPECT_EQ(t.shares_memory(), alone ? 0 : 1);
}

TEST(Mpi, one_worker_can_switch_sharing_off_for_all) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == processes() - 1) setenv("GLOBALQ_SHARED_MEMORY", "off", 1);
  EXPECT_EQ((mpi{MPI_COMM_WORLD}.shares_memory()), 0);
  unsetenv("GLOBALQ_SHARED_MEMORY");
}

TEST(Mpi, device_memory_goes_by_an_mpi_that_takes_it_and_never_through_shared_memory) {
  bool const able = gq::transport::detail::mpi_takes_cuda();
  mpi const shared{MPI_COMM_WORLD}, apart{MPI_COMM_WORLD, {}, mpi::largest_piece, nothing};
  setenv("GLOBALQ_DEVICE_MEMORY", "off", 1);
  mpi const off{MPI_COMM_WORLD, {}, mpi::largest_piece, nothing};
  unsetenv("GLOBALQ_DEVICE_MEMORY");
  for (int peer = 0; peer < processes(); ++peer) {
    if (peer == shared.rank()) continue;
    EXPECT_FALSE(shared.takes_device_memory(peer));
    EXPECT_EQ(apart.takes_device_memory(peer), able);
    EXPECT_FALSE(off.takes_device_memory(peer));
  }
}

/// 0 waits for `first`, which waits for `second`, which waits for a long message of 0.
void wait_in_a_circle(int first, int second, std::size_t bytes_of_long) {
  mpi t{MPI_COMM_WORLD, patient, mpi::largest_piece, pairs};
  std::vector<std::byte> const out = pattern(0, second, bytes_of_long);
  std::vector<std::byte> in(out.size());
  int token = 0;
  auto const bytes = std::as_writable_bytes(std::span{&token, 1});
  if (t.rank() == 0) {
    auto incoming = t.recv_async(first, bytes);
    auto outgoing = t.send_async(second, out);
    t.wait(incoming);
    t.wait(outgoing);
  } else if (t.rank() == first) {
    auto incoming = t.recv_async(second, bytes);
    t.wait(incoming);
    auto outgoing = t.send_async(0, bytes);
    t.wait(outgoing);
  } else if (t.rank() == second) {
    auto incoming = t.recv_async(0, in);
    t.wait(incoming);
    EXPECT_EQ(in, out);
    auto outgoing = t.send_async(first, bytes);
    t.wait(outgoing);
  }
}

TEST(Mpi, waiting_within_a_node_moves_messages_between_nodes) {
  if (processes() < 3) GTEST_SKIP() << "needs three processes";
  wait_in_a_circle(1, 2, std::size_t{4} << 20);
}

TEST(Mpi, waiting_between_nodes_moves_messages_within_a_node) {
  if (processes() < 3) GTEST_SKIP() << "needs three processes";
  wait_in_a_circle(2, 1, 100003);  // a hundred times the ring
}

TEST(Mpi, a_failure_is_heard_within_the_node_at_once) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  mpi t{MPI_COMM_WORLD, patient, mpi::largest_piece, pairs};
  auto const start = std::chrono::steady_clock::now();
  int const first = t.rank() / 2 * 2;
  std::byte byte{};
  if (t.shares_memory() == 0) {
    // alone on its node: there is nobody to hear of
  } else if (t.rank() == first) {
    auto const unused = t.recv_async(first + 1, std::span{&byte, 1});
  } else {
    auto const text = transport_failure([&] {
      auto incoming = t.recv_async(first, std::span{&byte, 1});
      t.wait(incoming);
    });
    EXPECT_EQ(text, "globalq: recv: rank " + std::to_string(t.rank()) + " of " + std::to_string(t.size()) +
                        ": rank " + std::to_string(first) +
                        " failed: a request was destroyed before it was waited for; fix that error first");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, patient.deadline / 2);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Mpi, long_messages_are_cut_in_pieces) {
  mpi t{MPI_COMM_WORLD, patient, 1000, nothing};
  int const next = (t.rank() + 1) % t.size();
  int const previous = (t.rank() - 1 + t.size()) % t.size();
  for (std::size_t const bytes : counts{0, 999, 1000, 1001, 2000, 100003}) {
    auto const out = pattern(t.rank(), next, bytes);
    std::vector<std::byte> in(bytes);
    auto outgoing = t.send_async(next, out);
    auto incoming = t.recv_async(previous, in);
    t.wait(outgoing);
    t.wait(incoming);
    EXPECT_EQ(in, pattern(previous, t.rank(), bytes));

    std::vector<std::byte> all(bytes * static_cast<std::size_t>(t.size()));
    t.allgather(out, all);
    auto const first = pattern(0, 1 % t.size(), bytes);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  }
  expect_exact_sums<std::int8_t>(t);
  expect_exact_sums<std::int16_t>(t);
  expect_exact_sums<float>(t);
}

TEST(Mpi, sizes_that_differ_in_their_pieces_are_an_error) {
  struct sizes {
    std::size_t sent, expected;
  };
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  for (sizes const differ : {sizes{1000, 1001}, sizes{1001, 1000}, sizes{2000, 1000}, sizes{1000, 2000},
                             sizes{1, 1000}, sizes{1500, 1600}, sizes{1600, 1500}}) {
    mpi t{MPI_COMM_WORLD, impatient, 1000, nothing};
    std::vector<std::byte> bytes(2000);
    if (t.rank() == 0) {
      auto const text = transport_failure([&] {
        auto incoming = t.recv_async(1, std::span{bytes}.first(differ.expected));
        t.wait(incoming);
      });
      EXPECT_TRUE(
          contains(text, "expected " + std::to_string(differ.expected) + " bytes from rank 1, which sent "))
          << text;
    } else if (t.rank() == 1) {
      auto outgoing = t.send_async(0, std::span<std::byte const>{bytes}.first(differ.sent));
      EXPECT_NO_THROW(t.wait(outgoing));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(Mpi, a_failed_wait_breaks_the_transport_for_good) {
  mpi t{MPI_COMM_WORLD, impatient, mpi::largest_piece, nothing};
  std::byte byte{};
  int const previous = (t.rank() - 1 + t.size()) % t.size();
  auto incoming = t.recv_async(previous, std::span{&byte, 1});
  auto const text = transport_failure([&] { t.wait(incoming); });
  EXPECT_EQ(text, "globalq: recv: rank " + std::to_string(t.rank()) + " of " + std::to_string(t.size()) +
                      ": waited 0.3 s for rank " + std::to_string(previous) +
                      " to send 1 bytes; let every worker make the same calls in the same order, or raise "
                      "options::deadline");
  std::vector<std::byte> all(static_cast<std::size_t>(t.size()));
  std::vector<float> values(3);
  for (auto const& again :
       {transport_failure([&] { t.wait(incoming); }),
        transport_failure([&] { static_cast<void>(t.send_async(0, all)); }),
        transport_failure([&] { static_cast<void>(t.recv_async(0, all)); }), transport_failure([&] {
          t.allgather(std::span{&byte, 1}, all);
        }),
        transport_failure([&] { t.allreduce_sum(std::span{values}); })}) {
    EXPECT_TRUE(contains(again, "the transport is broken: a wait passed its deadline")) << again;
  }
  mpi another{MPI_COMM_WORLD, patient};
  gq::transport::barrier(another);
}

TEST(Mpi, a_collective_without_all_workers_ends_by_its_deadline) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  mpi t{MPI_COMM_WORLD, impatient};
  if (t.rank() != 0) {
    std::vector<std::byte> all(8 * static_cast<std::size_t>(t.size()));
    auto const text = transport_failure([&] { t.allgather(std::span{all}.first(8), all); });
    EXPECT_TRUE(contains(text, "allgather: rank ") && contains(text, "waited 0.3 s")) << text;
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Mpi, a_request_that_is_given_up_breaks_the_transport) {
  mpi t{MPI_COMM_WORLD, impatient};
  {
    std::vector<std::byte> bytes(100);
    auto const unused = t.recv_async(t.rank(), bytes);
  }
  auto const text = transport_failure([&] { static_cast<void>(t.send_async(0, {})); });
  EXPECT_TRUE(contains(text, "a request was destroyed before it was waited for")) << text;
}

TEST(Mpi, retained_buffers_live_as_long_as_transfers_do) {
  mpi t{MPI_COMM_WORLD, patient};
  auto buffers = std::make_shared<std::vector<std::byte>>(100);
  t.retain(buffers);
  EXPECT_EQ(buffers.use_count(), 1);  // nothing under way
  auto incoming = t.recv_async(t.rank(), *buffers);
  t.retain(buffers);
  EXPECT_EQ(buffers.use_count(), 2);
  std::vector<std::byte> const out(100);
  auto outgoing = t.send_async(t.rank(), out);
  t.wait(outgoing);
  EXPECT_EQ(buffers.use_count(), 2);
  t.wait(incoming);
  EXPECT_EQ(buffers.use_count(), 1);
}

TEST(Mpi, buffers_of_a_send_that_nobody_receives_live_on) {
  if (processes() < 2) GTEST_SKIP() << "needs two processes";
  auto buffers =
      std::make_shared<std::vector<std::byte>>(std::size_t{1} << 20);  // too long to be sent eagerly
  {
    mpi t{MPI_COMM_WORLD, impatient, mpi::largest_piece, nothing};
    if (t.rank() == 0) {
      try {
        auto outgoing = t.send_async(1, *buffers);
        t.wait(outgoing);
        ADD_FAILURE() << "1 MiB went to a worker that does not receive";
      } catch (gq::transport_error const&) {
        t.retain(buffers);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (mpi{MPI_COMM_WORLD}.rank() == 0) {
    EXPECT_EQ(buffers.use_count(), 2);
  }
}

}  // namespace mpi_test

}  // namespace globalq_test
