// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Tests of transport::group: the suite of all transports, by some of the workers of a larger one, in another order.

#include "globalq/transport/group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "globalq/transport/threads.hpp"
#include "suite.hpp"

namespace globalq_test {
namespace {

using gq::transport::group;
using gq::transport::threads;
using ::testing::HasSubstr;

/// Every other worker of twice as many and one, the last one first.
std::vector<int> odd_ranks(int workers) {
  std::vector<int> ranks;
  for (int k = workers; k-- > 0;) ranks.push_back(2 * k + 1);
  return ranks;
}

struct group_harness {
  using endpoint = group<threads::endpoint>;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  /// An error is told with the ranks of the whole transport, which find the process.
  static std::pair<int, int> in_errors(int rank, int workers) {
    return {odd_ranks(workers)[static_cast<std::size_t>(rank)], 2 * workers + 1};
  }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    threads cluster{2 * workers + 1, settings};
    cluster.run([&](threads::endpoint& all) {
      if (all.rank() % 2 == 0) return;
      endpoint some{all, odd_ranks(workers)};
      body(some);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(group, transport_suite, group_harness);

static_assert(gq::transport::OwnExecution<group_harness::endpoint>);
static_assert(gq::transport::OwnBytesSent<group_harness::endpoint>);
static_assert(gq::transport::OwnRetain<group_harness::endpoint> ==
              gq::transport::OwnRetain<threads::endpoint>);
static_assert(!gq::transport::OwnAllreduceSum<group_harness::endpoint, float>, "that would take all workers");

TEST(Group, knows_ranks_inside_and_outside) {
  threads cluster{5, patient};
  cluster.run([](threads::endpoint& all) {
    if (all.rank() == 0 || all.rank() == 3) return;
    group some{all, {4, 1, 2}};
    EXPECT_EQ(some.rank_outside(some.rank()), all.rank());
    EXPECT_EQ(some.size(), 3);
    EXPECT_EQ(some.rank_outside(0), 4);
    EXPECT_EQ(some.name(), "group of 3 of threads");
  });
}

TEST(Group, two_groups_do_not_hear_each_other) {
  threads cluster{6, patient};
  cluster.run([](threads::endpoint& all) {
    int const color = all.rank() % 2;
    group mine{all, color == 0 ? std::vector<int>{0, 2, 4} : std::vector<int>{5, 3, 1}};
    std::vector<int> ranks(3);
    for (int turn = 0; turn < 20; ++turn) {
      gq::transport::allgather_value(mine, all.rank(), std::span{ranks});
      EXPECT_EQ(ranks, color == 0 ? (std::vector<int>{0, 2, 4}) : (std::vector<int>{5, 3, 1}));
    }
  });
}

TEST(Group, counts_what_is_sent_in_it) {
  threads cluster{3, patient};
  cluster.run([](threads::endpoint& all) {
    if (all.rank() == 0) return;
    group some{all, {1, 2}};
    std::vector<std::byte> out(100), in(100);
    auto incoming = some.recv_async(1 - some.rank(), in);
    auto outgoing = some.send_async(1 - some.rank(), out);
    some.wait(outgoing);
    some.wait(incoming);
    EXPECT_EQ(some.bytes_sent(), 100U);
  });
}

TEST(Group, lists_that_are_wrong_are_refused) {
  threads cluster{3, patient};
  cluster.run([](threads::endpoint& all) {
    auto const refusal = [&](std::vector<int> const& ranks) -> std::string {
      try {
        group{all, ranks};
      } catch (gq::configuration_error const& e) {
        return e.what();
      }
      return {};
    };
    int const r = all.rank();
    EXPECT_THAT(refusal({r, 3}), HasSubstr("there is no worker 3"));
    EXPECT_THAT(refusal({-1, r}), HasSubstr("there is no worker -1"));
    EXPECT_THAT(refusal({r, r}), HasSubstr("is named twice"));
    EXPECT_THAT(refusal({(r + 1) % 3}), HasSubstr("does not hold this worker"));
    EXPECT_THAT(refusal({}), HasSubstr("does not hold this worker"));
    EXPECT_EQ(refusal({2, 1, 0}), "");
  });
}

}  // namespace
}  // namespace globalq_test
