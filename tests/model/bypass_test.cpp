// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The bypass: what is decided from given numbers, by all workers alike, and that it is told.

#include "tests/support/refusal.hpp"

#include <globalq/model/bypass.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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

// Groups count together; calls that are started and direct ones share a queue; telemetry tells which were in float32.
TEST(Bypass, serves_groups_and_started_calls_and_shows_in_telemetry) {
  constexpr int n = 3;
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    gq::telemetry seen;
    int heard = 0;
    model::bypassing_mean mean{workers,
                               op,
                               gq::schedule::ring{},
                               {.seed = 5, .telemetry = &seen},
                               links(n, 1e-4, 1e8),
                               compressed(),
                               plain(),
                               [&](auto const&) { ++heard; }};
    std::uint64_t crossover = 1;
    while (!mean.decision(crossover).compress) crossover *= 2;
    std::size_t const d = crossover * 6 / 10;  // float32; two of them are compressed
    ASSERT_FALSE(mean.decision(d).compress);
    ASSERT_TRUE(mean.decision(2 * d).compress);
    auto a = values(workers.rank(), d), b = values(workers.rank() + 7, d), c = a, e = b, f = a, g = a;
    mean(gq::vector_group{}.add(a).add(b), 4);
    EXPECT_EQ(seen.take().uncompressed, 0U);
    auto const first = mean.start(c, 9);
    mean.start(e, 10);
    mean.wait();
    EXPECT_TRUE(first.test());
    gq::call_report const total = seen.take();
    EXPECT_EQ(total.calls, 2U);
    EXPECT_EQ(total.uncompressed, 2U);
    EXPECT_EQ(heard, 2);
    gq::allreduce_mean as_int8{workers, op, gq::schedule::ring{}, gq::options{.seed = 5}};
    gq::allreduce_mean as_float32{workers, gq::uncompressed{}, gq::schedule::ring{}, gq::options{.seed = 5}};
    as_int8(gq::vector_group{}.add(f).add(g = values(workers.rank() + 7, d)), 4);
    EXPECT_EQ(a, f);
    EXPECT_EQ(b, g);
    f = values(workers.rank(), d);
    as_float32(f, 9);
    EXPECT_EQ(c, f);
  });
}

TEST(Bypass, decides_for_the_layers_of_a_model) {
  constexpr int n = 2;
  gq::adapt::model_layout small, large;
  small.add("w", {20, 10});
  large.add("w", {1000, 1000}).add("b", {1000});
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    std::vector<std::string> heard;
    model::bypass bypass{
        workers, gq::schedule::ring{}, links(n, 1e-4, 1e8), compressed(), plain(), [&](auto const& d) {
          heard.push_back(d.reason);
        }};
    for (auto const* model : {&small, &large}) {
      bool const compress = bypass(model->length()).compress;
      EXPECT_EQ(compress, model == &large);
      std::vector<gq::any_quantizer> const operators(
          model->size(), compress ? gq::any_quantizer{op} : gq::any_quantizer{gq::uncompressed{}});
      gq::adapt::layered_mean mean{workers, *model, operators, gq::schedule::ring{}};
      std::vector<float> x(model->length(), 1.0F);
      mean(x, 0);
      EXPECT_EQ(x, std::vector<float>(model->length(), 1.0F));
    }
    ASSERT_EQ(heard.size(), 2U);
    EXPECT_THAT(heard[0], HasSubstr("128 to 255 values: float32"));
  });
}

TEST(Bypass, vectors_longer_than_the_longest_are_as_that_one) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    model::bypass const bypass{workers, gq::schedule::ring{}, links(2, 1e-4, 1e8), compressed(),
                               plain(), [](auto const&) {},   {.longest = 1000}};
    EXPECT_EQ(bypass.decisions().size(), 10U);
    EXPECT_EQ(bypass.decisions().back().first, 512U);
    EXPECT_EQ(bypass.decision(1'000'000).last, gq::random::max_length);
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
                HasSubstr("costs of int8 with reduce sum on schedule ring are unknown"));
    EXPECT_THAT(refusal(links(3, 0, 1), compressed(), quiet),
                HasSubstr("measured with 3 workers, but there are 2"));
    EXPECT_THAT(refusal(links(2, 0, 1), compressed(), std::function<void(model::bypass_decision const&)>{}),
                HasSubstr("rank 0 of 2: no listener is registered"));
    EXPECT_THAT(refusal(links(2, 0, 1), plain(), quiet),
                HasSubstr("rank 0 of 2: costs are in the wrong order"));
    auto const other =
        model::operator_model::of("int8",
                                  gq::quantizer{gq::norm::linf{.bucket = 64}, gq::levels::uniform<>{},
                                                gq::rounding::stochastic{}, gq::wire::int8{}},
                                  {.norm = 1e-10, .encode = 2e-10, .reduce = 1e-10, .decode = 1e-10});
    EXPECT_THAT(refusal(links(2, 0, 1), other, quiet), HasSubstr("rank 0 of 2: costs and operator differ"));
    for (double const gain : {0.0, -1.0, std::nan("")})
      EXPECT_THAT(support::refusal([&] {
                    model::bypass{workers, gq::schedule::ring{}, links(2, 0, 1), compressed(), plain(),
                                  quiet,   {.least_gain = gain}};
                  }),
                  HasSubstr("least_gain is"));
    EXPECT_THAT(support::refusal([&] {
                  model::bypass{workers, gq::schedule::ring{}, links(2, 0, 1), compressed(), plain(),
                                quiet,   {.longest = 0}};
                }),
                HasSubstr("longest is 0; give 1 to"));
    // the other hears of it as well, instead of waiting
    std::function<void(model::bypass_decision const&)> const one = workers.rank() == 0 ? quiet : nullptr;
    EXPECT_THAT(refusal(links(2, 0, 1), compressed(), one),
                HasSubstr("rank 1 of 2: no listener is registered"));
  });
}

}  // namespace
