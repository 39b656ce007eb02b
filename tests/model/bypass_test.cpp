// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The bypass: what is decided from given numbers, by all workers alike, and that it is told.

#include <globalq/model/bypass.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

namespace gq = globalq;
namespace model = globalq::model;
using testing::HasSubstr;

namespace {

gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                       gq::wire::int8{}};

model::operator_model compressed() {
  return model::operator_model::of("int8", op,
                                   {.norm = 1e-10, .encode = 2e-10, .reduce = 1e-10, .decode = 1e-10});
}
model::operator_model plain() {
  return model::operator_model::of("float32", gq::uncompressed{},
                                   {.encode = 1e-10, .reduce = 1e-10, .decode = 1e-10});
}

/// Norms of buckets are a second exchange, so short vectors are faster as float32 where latency counts.
model::calibration links(int n, double alpha, double beta) {
  model::calibration c;
  c.net = model::network::uniform(n, alpha, beta);
  return c;
}

std::vector<float> values(int rank, std::size_t d) {
  std::vector<float> x(d);
  std::uint32_t state = static_cast<std::uint32_t>(rank) + 1;
  for (float& v : x) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(static_cast<int>(state >> 20) - 2048) * 0x1p-11F;
  }
  return x;
}

TEST(Bypass, sends_short_vectors_as_float32_and_long_ones_compressed_and_tells_it_once) {
  constexpr int n = 3;
  gq::transport::threads cluster{n};
  std::mutex mutex;
  std::vector<std::string> told[n];
  cluster.run([&](auto& workers) {
    // worker 0's links decide, whatever the others measured
    auto const mine = workers.rank() == 0 ? links(n, 1e-4, 1e8) : links(n, 1e-9, 1e15);
    std::vector<std::string> heard;
    model::bypassing_mean mean{
        workers, op, gq::schedule::ring{}, {.seed = 5}, mine, compressed(), plain(), [&](auto const& d) {
          heard.push_back(d.reason);
        }};
    EXPECT_FALSE(mean.decision(100).compress);
    EXPECT_TRUE(mean.decision(500'000).compress);
    bool compresses = false;
    for (auto const& d : mean.decisions()) {
      EXPECT_GE(d.compress, compresses) << d.reason;  // one crossover
      EXPECT_EQ(d.compress, d.compressed_seconds < d.plain_seconds);
      compresses = d.compress;
    }
    gq::allreduce_mean as_float32{workers, gq::uncompressed{}, gq::schedule::ring{}, gq::options{.seed = 5}};
    gq::allreduce_mean as_int8{workers, op, gq::schedule::ring{}, gq::options{.seed = 5}};
    for (std::size_t const d : {100U, 101U, 200'000U, 200'001U}) {
      auto a = values(workers.rank(), d), b = a;
      mean(a, 7);
      bool const compress = mean.decision(d).compress;
      EXPECT_EQ(mean.plan(d).bytes_sent,
                compress ? as_int8.plan(d).bytes_sent : as_float32.plan(d).bytes_sent);
      compress ? as_int8(b, 7) : as_float32(b, 7);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), 4 * d), 0) << d;
    }
    std::lock_guard const lock(mutex);
    told[workers.rank()] = heard;
  });
  ASSERT_EQ(told[0].size(), 2U);  // two lengths of each range, told once
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(told[0], told[2]);
  EXPECT_THAT(told[0][0], HasSubstr("64 to 127 values: float32, since int8 is predicted to take"));
  EXPECT_THAT(told[0][1], HasSubstr("131072 to 262143 values: int8, since"));
}

TEST(Bypass, bypasses_everything_on_a_network_faster_than_the_operator) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    model::bypassing_mean mean{workers,      op,      gq::schedule::ring{}, {}, links(2, 1e-6, 1e12),
                               compressed(), plain(), [](auto const&) {}};
    for (auto const& d : mean.decisions()) EXPECT_FALSE(d.compress) << d.reason;
    EXPECT_EQ(mean.decisions().front().first, 0U);
    for (std::size_t k = 1; k < mean.decisions().size(); ++k)
      EXPECT_EQ(mean.decisions()[k].first, mean.decisions()[k - 1].last + 1);
    EXPECT_EQ(mean.decisions().back().last, gq::random::max_length);
  });
}

TEST(Bypass, refuses_on_every_worker_alike) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    auto const refusal = [&](model::calibration const& l, model::operator_model const& m,
                             auto tell) -> std::string {
      try {
        model::bypassing_mean mean{workers, op, gq::schedule::ring{}, {}, l, m, plain(), tell};
      } catch (gq::configuration_error const& e) {
        return e.what();
      }
      return "";
    };
    std::function<void(model::bypass_decision const&)> const quiet = [](auto const&) {};
    EXPECT_THAT(refusal(links(2, 0, 1), model::operator_model::of("int8", op), quiet),
                HasSubstr("costs of int8 with reduce sum on schedule ring are not known"));
    EXPECT_THAT(refusal(links(3, 0, 1), compressed(), quiet),
                HasSubstr("those of 3 workers and there are 2"));
    EXPECT_THAT(refusal(links(2, 0, 1), compressed(), std::function<void(model::bypass_decision const&)>{}),
                HasSubstr("nobody is told at worker 0"));
    // the other hears of it as well, instead of waiting
    std::function<void(model::bypass_decision const&)> const one = workers.rank() == 0 ? quiet : nullptr;
    EXPECT_THAT(refusal(links(2, 0, 1), compressed(), one), HasSubstr("nobody is told at worker 1"));
  });
}

}  // namespace
