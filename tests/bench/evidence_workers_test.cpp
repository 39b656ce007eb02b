// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The transport behind which bench/evidence compiles every method once keeps to what all transports do, and its clock
/// counts what it should; and an exchange hears of steps where its method asks for them.

#include "bench/evidence/compressor_exchange.hpp"
#include "bench/evidence/workers.hpp"
#include "tests/transport/suite.hpp"

#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/send_first.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace globalq_test {

struct evidence_harness {
  using endpoint = evidence::workers;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    gq::transport::threads cluster(workers, settings);
    cluster.run([&](auto& here) {
      evidence::workers all(here);
      body(all);
    });
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(evidence_workers, transport_suite, evidence_harness);

/// Computes for a while, as the clock of the thread has it.
void compute(double seconds) {
  double const begin = evidence::thread_seconds();
  while (evidence::thread_seconds() - begin < seconds) {
  }
}

TEST(EvidenceWorkers, a_sleeping_thread_does_not_compute) {
  double const begin = evidence::thread_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  EXPECT_LT(evidence::thread_seconds() - begin, 0.1);
}

TEST(EvidenceWorkers, what_is_computed_outside_is_not_inside) {
  evidence_harness::run(2, patient, [](evidence::workers& all) {
    compute(0.01);
    EXPECT_EQ(all.seconds_inside(), 0.0);
    std::vector<std::byte> const mine(1 << 20);
    std::vector<std::byte> both(2 << 20);
    double const begin = evidence::thread_seconds();
    all.allgather(mine, both);
    double const most = evidence::thread_seconds() - begin, inside = all.seconds_inside();
    EXPECT_GT(inside, 0.0);
    EXPECT_LE(inside, most);
    compute(0.01);
    EXPECT_EQ(all.seconds_inside(), inside);
  });
}

TEST(EvidenceWorkers, it_sends_what_the_transport_sends) {
  gq::transport::threads cluster(2, patient);
  cluster.run([](auto& here) {
    evidence::workers all(here);
    int const peer = 1 - all.rank();
    std::vector<std::byte> const mine(1000);
    std::vector<std::byte> theirs(1000);
    auto incoming = all.recv_async(peer, theirs);
    auto outgoing = all.send_async(peer, mine);
    all.wait(incoming);
    all.wait(outgoing);
    EXPECT_EQ(all.bytes_sent(), 1000U);
    EXPECT_EQ(here.bytes_sent(), 1000U);
  });
}

TEST(EvidenceExchange, steps_are_told_to_the_methods_that_observe_them_and_to_no_others) {
  gq::adapt::model_layout layers;
  layers.add("all", {100});
  evidence_harness::run(1, patient, [&](evidence::workers& all) {
    evidence::setting const with{all, layers};
    auto const integers = evidence::plain(with, gq::baseline::int_sgd<>(layers));
    EXPECT_TRUE(integers->observes());
    std::vector<float> x(100, 1000.0F);
    (*integers)(x, 0);  // the first call is in float32
    EXPECT_EQ(x[99], 1000.0F);
    integers->observe(100.0 / 2 * 0.25, 0.5);  // a scale of 1
    (*integers)(x, 1);
    EXPECT_NEAR(x[99], 127.0F, 1e-4);
    auto const others = evidence::fed_back(with, gq::baseline::send_first(layers));
    EXPECT_FALSE(others->observes());
    others->observe(1, 1);
  });
}

}  // namespace globalq_test
