// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Gradients averaged during the backward pass: the bits of one call, whatever the order and timing; errors.

#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/train/adapt/overlapped_mean.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>
#include <thread>

namespace gq = globalq;
using gq::adapt::layered_mean;
using gq::adapt::overlapped_mean;
using support::on_threads;
using support::refusal;
using support::values;
using testing::HasSubstr;

namespace {

gq::adapt::model_layout seven_layers() {
  gq::adapt::model_layout m;
  m.add("a.weight", {30, 40}).add("a.bias", {30}).add("b.weight", {9, 300}).add("b.bias", {9});
  return m.add("none", {0}).add("c.weight", {600}).add("c.bias", {1});
}

std::vector<gq::any_quantizer> int8_operators(gq::adapt::model_layout const& model) {
  return gq::adapt::operators_of(model, gq::adapt::filter{}.named("*.bias"),
                                 gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::uniform{9},
                                               gq::rounding::stochastic{}, gq::wire::int8{}});
}

using vectors = std::vector<std::vector<float>>;
vectors layer_gradients(gq::adapt::model_layout const& model, int rank) {
  vectors g;
  for (auto const& l : model) g.push_back(values(l.size, rank * 50 + static_cast<int>(g.size())));
  return g;
}

TEST(OverlappedMean, groups_are_filled_from_the_last_layer_on) {
  on_threads(1, [](auto& workers) {
    gq::adapt::model_layout const model = seven_layers();
    overlapped_mean mean{
        workers, model, int8_operators(model), gq::schedule::sra{}, {.group_bytes = 4 * 2709}};
    std::vector<std::size_t> at;
    for (std::size_t k = 0; k < model.size(); ++k) at.push_back(mean.group_of(k));
    EXPECT_EQ(mean.groups(), 3U)
        << "601 and 9 values and none; 2,700 with 9 would be 2,709 and fit by themselves";
    EXPECT_THAT(at, testing::ElementsAre(2, 2, 1, 0, 0, 0, 0));
    overlapped_mean each{workers, model, int8_operators(model), gq::schedule::sra{}, {.group_bytes = 1}};
    EXPECT_EQ(each.group_of(5), 1U);
    EXPECT_EQ(each.group_of(0), each.groups() - 1);
    overlapped_mean whole{workers, model, int8_operators(model), gq::schedule::sra{}};
    EXPECT_EQ(whole.groups(), 1U);
  });
}

TEST(OverlappedMean, order_and_timing_change_no_bit) {
  gq::adapt::model_layout const model = seven_layers();
  for (std::uint64_t bytes : {1, 4 * 700, 1 << 20})
    for (int n : {1, 2, 3, 5}) {
      std::vector<vectors> results(static_cast<std::size_t>(n));
      on_threads(n, [&](auto& workers) {
        overlapped_mean mean{workers,
                             model,
                             int8_operators(model),
                             gq::schedule::allgather{},
                             {.layers = {.call = {.seed = 4}, .warm_up = 1}, .group_bytes = bytes}};
        layered_mean whole{workers,
                           model,
                           int8_operators(model),
                           gq::schedule::allgather{},
                           {.call = {.seed = 4}, .warm_up = 1}};
        std::mt19937 draw(static_cast<unsigned>(7 * workers.rank() + 1));
        for (std::uint64_t step = 0; step < 4; ++step) {
          vectors g = layer_gradients(model, workers.rank()), at_once = g;
          std::vector<std::size_t> order(model.size());
          std::iota(order.rbegin(), order.rend(), std::size_t{0});
          if (step >= 2) std::shuffle(order.begin(), order.end(), draw);  // another order on every worker
          mean.begin(step);
          for (std::size_t k : order) {
            if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
            mean.ready(k, g[k]);
          }
          mean.wait();
          gq::vector_group group;
          for (auto& v : at_once) group.add(v);
          whole(group, step);
          EXPECT_EQ(g, at_once) << "step " << step << ", n = " << n << ", groups of " << bytes;
          results[static_cast<std::size_t>(workers.rank())] = g;
        }
      });
      for (auto const& r : results) EXPECT_EQ(r, results[0]);
    }
}

// A backward pass that computes its other gradients only after the last layers' are means: it would wait for ever if groups
// were averaged in wait().
TEST(OverlappedMean, a_full_group_is_averaged_while_the_backward_pass_goes_on) {
  gq::adapt::model_layout const model = seven_layers();
  on_threads(3, [&](auto& workers) {
    auto g = layer_gradients(model, workers.rank());
    gq::telemetry seen;
    overlapped_mean mean{workers,
                         model,
                         int8_operators(model),
                         gq::schedule::sra{},
                         {.layers = {.call = {.telemetry = &seen}}, .group_bytes = 4 * 2709}};
    mean.begin(0);
    std::size_t averaged = 0;
    for (std::size_t k = model.size(); k-- != 0;) {
      mean.ready(k, g[k]);
      if (k != 0 && mean.group_of(k - 1) == mean.group_of(k)) continue;
      ++averaged;
      auto const until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
      while (seen.total().calls != averaged && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::microseconds{100});
      ASSERT_EQ(seen.total().calls, averaged) << "layer " << k << " and those behind it";
    }
    mean.wait();
    EXPECT_EQ(averaged, 3U);
  });
}

TEST(OverlappedMean, sums_of_codes_have_the_bits_of_one_call_too) {
  gq::adapt::model_layout const model = seven_layers();
  std::vector<gq::any_quantizer> const ops(model.size(), int8_operators(model)[0]);
  for (char const* schedule : {"ring", "tree", "sra"})
    on_threads(3, [&](auto& workers) {
      overlapped_mean mean{workers, model, ops, gq::schedule::any{schedule}, {.group_bytes = 4 * 700}};
      layered_mean whole{workers, model, ops, gq::schedule::any{schedule}};
      vectors g = layer_gradients(model, workers.rank()), at_once = g;
      mean.begin(2);
      for (std::size_t k = model.size(); k-- != 0;) mean.ready(k, g[k]);
      mean.wait();
      gq::vector_group group;
      for (auto& v : at_once) group.add(v);
      whole(group, 2);
      EXPECT_EQ(g, at_once) << schedule;
    });
}

TEST(OverlappedMean, operators_change_between_steps) {
  gq::adapt::model_layout const model = seven_layers();
  on_threads(2, [&](auto& workers) {
    auto ops = int8_operators(model);
    overlapped_mean mean{workers, model, ops, gq::schedule::allgather{}, {.group_bytes = 4 * 700}};
    ops[2] = gq::uncompressed{};
    mean.assign(2, ops[2]);
    layered_mean whole{workers, model, ops, gq::schedule::allgather{}};
    vectors g = layer_gradients(model, workers.rank()), at_once = g;
    mean.begin(0);
    for (std::size_t k = 0; k < model.size(); ++k) mean.ready(k, g[k]);
    EXPECT_THROW(mean.assign(2, ops[2]), gq::configuration_error);
    mean.wait();
    gq::vector_group group;
    for (auto& v : at_once) group.add(v);
    whole(group, 0);
    EXPECT_EQ(g, at_once);
    EXPECT_THROW(mean.assign(7, ops[2]), gq::configuration_error);
  });
}

TEST(OverlappedMean, misuse_is_told_with_the_layer_and_the_remedy) {
  on_threads(1, [](auto& workers) {
    gq::adapt::model_layout model;
    model.add("a", {3}).add("b", {4});
    auto const ops = int8_operators(model);
    overlapped_mean mean{workers, model, ops, gq::schedule::sra{}};
    std::vector<float> a(3), b(4);
    std::vector<double> d(3);
    EXPECT_THAT(refusal([&] { mean.ready(0, a); }), HasSubstr("no step has begun"));
    mean.begin(0);
    EXPECT_THAT(refusal([&] { mean.begin(1); }), HasSubstr("step 0 has begun and wait() has not ended it"));
    EXPECT_THAT(refusal([&] { mean.ready(2, a); }), HasSubstr("there is no layer 2 among 2"));
    EXPECT_THAT(refusal([&] { mean.ready(0, b); }),
                HasSubstr("layer \"a\" has 3 values of float32, but its gradient has 4"));
    EXPECT_THAT(refusal([&] { mean.ready(0, d); }), HasSubstr("3 of float64"));
    mean.ready(0, a);
    EXPECT_THAT(refusal([&] { mean.ready(0, a); }),
                HasSubstr("ready() was called twice for layer \"a\" in step 0"));
    EXPECT_THAT(refusal([&] { mean.wait(); }), HasSubstr("layer \"b\" was not ready at the end of step 0"));
    mean.begin(1);
    mean.ready(0, a);
    mean.ready(1, b);
    mean.wait();
    EXPECT_THAT(refusal([&] {
                  overlapped_mean{workers, model, std::vector<gq::any_quantizer>{}, gq::schedule::sra{}};
                }),
                HasSubstr("0 operators for 2 layers"));
  });
}

TEST(OverlappedMean, an_error_of_a_call_is_thrown_by_wait_and_the_next_step_goes_on) {
  gq::adapt::model_layout const model = seven_layers();
  on_threads(3, [&](auto& workers) {
    overlapped_mean mean{workers,
                         model,
                         int8_operators(model),
                         gq::schedule::sra{},
                         {.layers = {.call = {.non_finite = gq::non_finite::error}}, .group_bytes = 4 * 700}};
    for (std::uint64_t step = 0; step < 2; ++step) {
      vectors g = layer_gradients(model, workers.rank());
      if (step == 0 && workers.rank() == 1) g[2][5] = std::numeric_limits<float>::infinity();
      mean.begin(step);
      for (std::size_t k = model.size(); k-- != 0;) mean.ready(k, g[k]);
      if (step == 0)
        EXPECT_THROW(mean.wait(), gq::non_finite_error);
      else
        mean.wait();
    }
  });
}

}  // namespace
