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

/// A host transport that takes device memory to and from every other worker, and notes what it was given.
class aware {
 public:
  using request = threads::endpoint::request;
  explicit aware(threads::endpoint& inner) : inner_{inner} {}
  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::uint64_t bytes_sent() const { return inner_.bytes_sent(); }
  bool takes_device_memory(int peer) const { return (peer + rank()) % 2 == 1; }
  request send_async(int peer, std::span<std::byte const> bytes) {
    given.push_back(bytes.data());
    return inner_.send_async(peer, bytes);
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    given.push_back(bytes.data());
    return inner_.recv_async(peer, bytes);
  }
  void wait(request& posted) { inner_.wait(posted); }

  std::vector<std::byte const*> given;

 private:
  threads::endpoint& inner_;
};

struct aware_harness {
  using endpoint = gq::transport::staged<aware, Kokkos::Serial>;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    threads cluster{workers, settings};
    cluster.run([&](threads::endpoint& inner) {
      aware host{inner};
      endpoint device{host, inner.execution()};
      body(device);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(staged_or_direct, transport_suite, aware_harness);

static_assert(gq::transport::OwnDeviceMemory<aware>);
static_assert(!gq::transport::OwnDeviceMemory<threads::endpoint>);

TEST(Staged, what_takes_device_memory_is_given_it) {
  threads cluster{3, patient};
  cluster.run([](threads::endpoint& inner) {
    aware host{inner};
    gq::transport::staged device{host, inner.execution()};
    std::vector<std::byte> mine[3], theirs[3];
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == inner.rank()) continue;
      std::vector<std::byte>&out = mine[peer], &in = theirs[peer];
      out = pattern(inner.rank(), peer, 5000);
      in.resize(5000);
      bool const direct = host.takes_device_memory(peer);
      auto incoming = device.recv_async(peer, in);
      EXPECT_EQ(host.given.back() == in.data(), direct);
      auto outgoing = device.send_async(peer, out);
      EXPECT_EQ(host.given.back() == out.data(), direct);
      device.wait(outgoing);
      device.wait(incoming);
      EXPECT_EQ(in, pattern(peer, inner.rank(), 5000));
    }
  });
}

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
