// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Predictions and choices from given numbers, and the agreement of all workers on measured ones.

#include "tests/support/refusal.hpp"

#include <globalq/model/calibrate.hpp>
#include <globalq/model/errors.hpp>
#include <globalq/model/predict.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gq = globalq;
namespace model = globalq::model;
using support::refusal;
using testing::HasSubstr;

namespace {

gq::quantizer const uniform8{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                             gq::wire::int8{}};
gq::quantizer const uniform4{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{},
                             gq::rounding::stochastic{}, gq::wire::packed<4>{}};
gq::quantizer const nearest8{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::nearest{},
                             gq::wire::int8{}};

model::work const quick{.norm = 1e-10, .encode = 3e-10, .reduce = 1e-10, .decode = 2e-10};

std::vector<model::operator_model> candidates(model::work const& coding = quick) {
  return {model::operator_model::of("float32", gq::uncompressed{},
                                    {.norm = 1e-10, .encode = 1e-10, .reduce = 1e-10, .decode = 1e-10}),
          model::operator_model::of("uniform8", uniform8, coding),
          model::operator_model::of("uniform4", uniform4, coding)};
}

TEST(Predict, sends_the_messages_of_the_call) {
  for (int const n : {1, 2, 3, 5, 8})
    for (char const* name : {"ring", "tree", "sra", "allgather"})
      for (auto const& op : candidates()) {
        gq::schedule::any const schedule{std::string_view(name)};
        auto const net = model::network::uniform(n, 1e-5, 1e8);
        auto const p = model::predict(net, op, schedule, 100'000);
        ASSERT_TRUE(p.fits());
        // the plan counts the busiest worker's bytes over the same code
        std::uint64_t const workers = static_cast<std::uint64_t>(n);
        EXPECT_LE(p.time.bytes, p.plan.bytes_sent * workers) << name << " " << op.name;
        EXPECT_GE(p.time.bytes * (name == std::string("tree") ? workers : 2), p.plan.bytes_sent) << name;
        EXPECT_NEAR(p.time.norm + p.time.encode + p.time.transfer + p.time.reduce + p.time.decode,
                    p.time.seconds, 1e-12);
        EXPECT_EQ(p.time.seconds, model::predict(net, op, schedule, 100'000).time.seconds);
      }
}

TEST(Predict, takes_at_least_the_bytes_over_the_bandwidth) {
  auto const net = model::network::uniform(4, 1e-4, 1.25e8);
  for (auto const& op : candidates()) {
    auto const p = model::predict(net, op, gq::schedule::ring{}, 1 << 22);
    double const least = static_cast<double>(p.plan.bytes_sent) / 1.25e8;
    EXPECT_GT(p.time.seconds, least);
    EXPECT_LT(p.time.seconds, 1.1 * least + 0.01) << op.name;
  }
}

TEST(Predict, needs_costs_for_the_way_of_adding) {
  auto const op = model::operator_model::of("uniform8", uniform8);
  EXPECT_THAT(
      refusal([&] { model::predict(model::network::uniform(2, 0, 1), op, gq::schedule::ring{}, 10); }),
      HasSubstr("the costs of uniform8 with reduce sum on schedule ring are unknown; measure them"));
  // what does not fit is told by the plan, not thrown
  auto const p =
      model::predict(model::network::uniform(200, 0, 1), candidates()[1], gq::schedule::ring{}, 10);
  EXPECT_FALSE(p.fits());
  EXPECT_THAT(p.plan.refusal, HasSubstr("200 workers x 1 level"));
  EXPECT_THAT(refusal([&] {
                model::predict(model::network::uniform(2, 0, 1), candidates()[1],
                               gq::schedule::any(std::string_view("native")), 10);
              }),
              HasSubstr("schedule native"));
}

TEST(Choose, compresses_on_slow_links_and_says_why) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  auto const c = model::choose(net, candidates(), 1 << 20);
  EXPECT_TRUE(c.compress);
  EXPECT_EQ(c.name, "uniform4");
  EXPECT_GT(c.plain.time.seconds / c.best.time.seconds, 6);
  EXPECT_THAT(c.reason, HasSubstr("uniform4 on schedule " + c.best.schedule));
  EXPECT_THAT(c.reason, HasSubstr("times as fast as float32 on schedule " + c.plain.schedule));
}

TEST(Choose, leaves_it_where_work_is_dearer_than_bytes) {
  auto const net = model::network::uniform(4, 1e-6, 1e11);
  model::work const slow{.norm = 1e-9, .encode = 5e-9, .reduce = 2e-9, .decode = 2e-9};
  auto const c = model::choose(net, candidates(slow), 1 << 20);
  EXPECT_FALSE(c.compress);
  EXPECT_EQ(c.name, "float32");
  EXPECT_THAT(c.reason, HasSubstr("do not compress: float32 on schedule "));
  EXPECT_THAT(c.reason, HasSubstr("the fastest operator, "));
  EXPECT_THAT(c.reason, HasSubstr("% of it encoding"));
}

TEST(Choose, leaves_out_what_errs_more_than_was_asked_for_or_without_bound) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  auto all = candidates();
  all.push_back(model::operator_model::of("nearest8", nearest8, quick));
  auto const free = model::choose(net, all, 1 << 20);
  EXPECT_EQ(free.name, "uniform4");
  double const theta8 = model::predict(net, all[1], gq::schedule::ring{}, 1 << 20).plan.theta;
  double const theta4 = free.best.plan.theta;
  ASSERT_LT(theta4, theta8);  // buckets
  auto const none = model::choose(net, all, 1 << 20, {.most_theta = 1e-9});
  EXPECT_FALSE(none.compress);
  EXPECT_THAT(none.reason, HasSubstr("8 combinations exceed the bounds on the error; 4 have no bound"));
  auto const some = model::choose(net, all, 1 << 20, {.most_iterations = 1 + 4 * theta4 * 1.001});
  EXPECT_EQ(some.name, "uniform4");
}

/// theta of candidates(), measured on normal values.
double theta_of(std::size_t number, std::string_view schedule) {
  std::mt19937_64 bits{1};
  std::normal_distribution<float> normal;
  std::vector<float> x(1 << 14);
  for (float& v : x) v = normal(bits);
  std::vector<std::span<float const>> const four(4, x);
  gq::schedule::any const way{schedule};
  return number == 1 ? model::measured_theta(uniform8, way, four)
                     : model::measured_theta(uniform4, way, four);
}

TEST(Choose, compares_times_to_a_target_by_measured_errors) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  auto const free = model::choose(net, candidates(), 1 << 20);
  auto const c = model::choose(net, candidates(), 1 << 20, {.time_to_target = true, .measured = theta_of});
  EXPECT_TRUE(c.compress);
  EXPECT_DOUBLE_EQ(c.iterations, 1 + 4 * theta_of(2, c.best.schedule));
  EXPECT_DOUBLE_EQ(c.score, c.best.time.seconds * c.iterations);
  EXPECT_LE(c.plain_score / c.score, free.plain_score / free.score);
  EXPECT_THAT(c.reason, HasSubstr(" iterations: "));
  EXPECT_THAT(c.reason, HasSubstr("to the target"));
  // multiplied by its bound, its time would exceed that of float32
  EXPECT_GT(c.best.plan.iterations_factor, free.plain_score / free.score);
}

TEST(Choose, ranks_by_measured_errors_where_bounds_rank_the_other_way) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  // one scale for the vector: a large bound; one for each 128 values: a small one
  auto const bound = [&](std::size_t k) {
    return model::predict(net, candidates()[k], gq::schedule::ring{}, 1 << 20).plan.theta;
  };
  ASSERT_GT(bound(1), bound(2));
  auto const chosen = [&](double of_whole, double of_buckets) {
    return model::choose(net, candidates(), 1 << 20,
                         {.time_to_target = true, .measured = [=](std::size_t k, std::string_view) {
                            return k == 1 ? of_whole : of_buckets;
                          }});
  };
  EXPECT_EQ(chosen(0.001, 0.001).name, "uniform4");  // fewer bytes
  auto const whole = chosen(0.001, 2);               // 9 times the iterations
  EXPECT_EQ(whole.name, "uniform8");
  EXPECT_DOUBLE_EQ(whole.iterations, 1.004);
  EXPECT_FALSE(chosen(10, 10).compress);
  EXPECT_EQ(chosen(10, 10).iterations, 1);
}

TEST(Choose, needs_measured_errors_for_times_to_a_target) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  EXPECT_THAT(refusal([&] { model::choose(net, candidates(), 100, {.time_to_target = true}); }),
              HasSubstr("time_to_target needs measured errors; set accuracy::measured"));
  EXPECT_THAT(refusal([&] {
                model::choose(net, candidates(), 100,
                              {.time_to_target = true, .measured = [](auto...) { return NAN; }});
              }),
              HasSubstr("the measured theta of uniform8 on schedule ring is nan; pass a finite number"));
}

TEST(Choose, takes_the_chunks_that_are_best) {
  auto const net = model::network::uniform(4, 1e-3, 1.25e8);
  model::search among;
  among.chunks = {0, 1024};
  auto const c = model::choose(net, candidates(), 1 << 20, {}, among);
  EXPECT_EQ(c.best.chunk_values, 0U);  // a latency for every 1,024 values would not pay
  among.chunks = {1 << 20, 65'536};
  among.schedules = {"tree"};
  auto const whole = model::choose(net, candidates(), 1 << 20, {}, among);
  auto const p =
      model::predict(net, candidates()[2], gq::schedule::tree{}, 1 << 20, {.chunk_values = 65'536});
  EXPECT_LE(whole.best.time.seconds, p.time.seconds);
}

TEST(Choose, names_the_uncompressed_operator_that_is_fastest) {
  std::vector<model::operator_model> two;
  for (auto const& [name, seconds] :
       {std::pair{"slow", 1e-6}, std::pair{"fast", 1e-10}, std::pair{"slower", 1e-5}})
    two.push_back(model::operator_model::of(
        name, gq::uncompressed{},
        {.norm = seconds, .encode = seconds, .reduce = seconds, .decode = seconds}));
  auto const c = model::choose(model::network::uniform(4, 1e-5, 1e9), two, 1 << 20);
  EXPECT_FALSE(c.compress);
  EXPECT_EQ(c.name, "fast");
  EXPECT_THAT(c.reason, HasSubstr("fast on schedule"));
  EXPECT_LT(c.plain.time.seconds, 0.1);
}

TEST(Choose, needs_something_to_compare_with) {
  auto const net = model::network::uniform(4, 1e-4, 2.5e7);
  auto const all = candidates();
  EXPECT_THAT(refusal([&] { model::choose(net, std::span(all).subspan(1), 100); }),
              HasSubstr("none of the 2 operators is uncompressed"));
  auto const alone = model::choose(net, std::span(all).first(1), 100);
  EXPECT_FALSE(alone.compress);
  EXPECT_THAT(alone.reason, HasSubstr("no operator is left: none was given"));
}

/// All bytes of what all workers must agree on.
std::vector<double> numbers(model::calibration const& c, model::operator_model const& m) {
  std::vector<double> all{c.alpha.value,        c.alpha.low,      c.beta.value,
                          c.beta.high,          c.overhead.value, c.crowded.value,
                          c.long_latency.value, c.seconds,        static_cast<double>(c.repeats)};
  for (auto const& link : c.net.links) all.insert(all.end(), {link.latency, link.up, link.down});
  for (auto const& w : m.costs)
    if (w) all.insert(all.end(), {w->norm, w->encode, w->reduce, w->decode, w->frame});
  return all;
}

class Calibrate : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, Calibrate, testing::Values(1, 2, 3, 5));

TEST_P(Calibrate, gives_all_workers_the_same_numbers_that_can_be_predicted_from) {
  int const n = GetParam();
  model::calibration_settings const little{.message_bytes = 8192, .repeats = 2, .values = 4096};
  gq::transport::threads cluster{n};
  std::vector<std::vector<double>> got(static_cast<std::size_t>(n));
  cluster.run([&](auto& workers) {
    auto const c = model::calibrate(workers, little);
    auto const m = model::calibrate_operator(workers, "uniform4", uniform4, little, Kokkos::Serial());
    EXPECT_EQ(c.net.workers(), n);
    EXPECT_EQ(c.repeats, n == 1 ? 0 : 2);
    EXPECT_TRUE(m.costs_of(gq::method::requantize));
    EXPECT_TRUE(m.costs_of(gq::method::none));
    EXPECT_FALSE(m.costs_of(gq::method::sum));
    EXPECT_GT(m.costs_of(gq::method::none)->encode, 0);
    auto const p = model::predict(c.net, m, gq::schedule::ring{}, 10'000, c.shape());
    EXPECT_GT(p.time.seconds, 0);
    EXPECT_LT(p.time.seconds, 10);
    got[static_cast<std::size_t>(workers.rank())] = numbers(c, m);
  });
  for (auto const& numbers : got) EXPECT_EQ(numbers, got[0]);
}

/// Stages need room beside the vector, for their side values.
TEST(Calibrate, times_operators_with_stages) {
  gq::transport::threads cluster{2};
  cluster.run([](auto& workers) {
    model::calibration_settings const little{.message_bytes = 8192, .repeats = 2, .values = 4096};
    gq::any_quantizer const op = gq::rotated{gq::centered{uniform4, 16}, 64};
    auto const m = model::calibrate_operator(workers, "mapped", op, little, Kokkos::Serial());
    EXPECT_GT(m.costs_of(gq::method::requantize)->norm, 0);
    EXPECT_GT(m.costs_of(gq::method::requantize)->decode, 0);
  });
}

TEST(Calibrate, keeps_to_its_budget) {
  gq::transport::threads cluster{2};
  cluster.run([](auto& workers) {
    model::calibration_settings s{.message_bytes = 8192, .repeats = 10'000};
    s.network_budget = std::chrono::milliseconds{20};
    auto const c = model::calibrate(workers, s);
    EXPECT_LT(c.repeats, 10'000);
    EXPECT_GE(c.repeats, 1);
    EXPECT_LE(c.beta.low, c.beta.value);
    EXPECT_LE(c.beta.value, c.beta.high);
    EXPECT_GE(c.beta.spread(), 0);
  });
}

TEST(Calibrate, refuses_settings_that_cannot_be_with_a_remedy) {
  auto const refused = [](model::calibration_settings const& s) {
    std::string text;
    gq::transport::threads cluster{1};
    cluster.run([&](auto& workers) { text = refusal([&] { model::calibrate(workers, s); }); });
    return text;
  };
  EXPECT_THAT(refused({.message_bytes = 100}), HasSubstr("message_bytes is 100; give 0, or 1,024"));
  EXPECT_THAT(refused({.stream = 2}), HasSubstr("give 3 to 1,000"));
  EXPECT_THAT(refused({.repeats = 0}), HasSubstr("give 1 to 10,000"));
  EXPECT_THAT(refused({.values = 1}), HasSubstr("give 4,096 to 2^30"));
}

}  // namespace
