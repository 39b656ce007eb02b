// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Tests of transport::staged: the suite of all transports, over threads, on a stream of the host.

#include "globalq/transport/staged.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "globalq/transport/threads.hpp"
#include "suite.hpp"

namespace globalq_test {
namespace {

using gq::transport::threads;

struct staged_harness {
  using endpoint = gq::transport::staged<threads::endpoint, Kokkos::Serial>;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    threads cluster{workers, settings};
    cluster.run([&](threads::endpoint& host) {
      endpoint device{host, host.execution()};
      body(device);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(staged, transport_suite, staged_harness);

static_assert(gq::transport::OnStream<staged_harness::endpoint>);
static_assert(gq::transport::OwnAllreduceSum<staged_harness::endpoint, float>);
static_assert(gq::transport::OwnBytesSent<staged_harness::endpoint>);
static_assert(gq::transport::OwnRetain<staged_harness::endpoint> ==
              gq::transport::OwnRetain<threads::endpoint>);

TEST(Staged, a_message_is_what_the_stream_had_written_when_it_was_sent) {
  staged_harness::run(2, patient, [](auto& t) {
    std::vector<std::byte> mine = pattern(t.rank(), 1 - t.rank(), 5000), theirs(5000);
    std::vector<std::byte> const sent = mine;
    auto incoming = t.recv_async(1 - t.rank(), theirs);
    auto outgoing = t.send_async(1 - t.rank(), mine);
    std::fill(mine.begin(), mine.end(), std::byte{0});  // the pinned copy is what travels
    t.wait(outgoing);
    EXPECT_NE(theirs, pattern(1 - t.rank(), t.rank(), 5000)) << "in place only once it was waited for";
    t.wait(incoming);
    EXPECT_EQ(theirs, pattern(1 - t.rank(), t.rank(), 5000));
  });
}

}  // namespace
}  // namespace globalq_test
