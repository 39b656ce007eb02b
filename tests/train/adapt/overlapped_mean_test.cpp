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
#include <cmath>
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

TEST(OverlappedMean, the_next_forward_pass_finds_its_first_layers_first) {
  on_threads(1, [](auto& workers) {
    gq::adapt::model_layout const model =
        seven_layers();  // groups of 1, 600, 0, 9, 2,700, 30 and 1,200 values
    auto const groups = [&](double share) {
      overlapped_mean mean{workers,
                           model,
                           int8_operators(model),
                           gq::schedule::sra{},
                           {.group_bytes = 1, .backward_share = share}};
      std::vector<std::size_t> at;
      for (std::size_t k = 0; k < model.size(); ++k) at.push_back(mean.group_of(k));
      return at;
    };
    EXPECT_THAT(groups(1), testing::ElementsAre(6, 5, 4, 3, 2, 1, 0));
    EXPECT_THAT(groups(0.73), testing::ElementsAre(5, 6, 4, 3, 2, 1, 0));
    EXPECT_THAT(groups(0.3), testing::ElementsAre(4, 5, 6, 3, 2, 1, 0));
    EXPECT_THAT(groups(0), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
    for (double const share : {-0.1, 1.1, std::nan("")})
      EXPECT_THAT(refusal([&] { groups(share); }), HasSubstr("give a share of all bytes from 0 to 1"));
  });
}

// The layers of later groups become ready only after the mean of the first layer: it would wait for ever if wait(0) waited
// for them.
TEST(OverlappedMean, a_layer_is_waited_for_alone_and_no_bit_changes) {
  gq::adapt::model_layout const model = seven_layers();
  for (double const share : {1.0, 0.5, 0.0})
    on_threads(3, [&](auto& workers) {
      overlapped_mean mean{workers,
                           model,
                           int8_operators(model),
                           gq::schedule::allgather{},
                           {.group_bytes = 4 * 700, .backward_share = share}};
      layered_mean whole{workers, model, int8_operators(model), gq::schedule::allgather{}};
      for (std::uint64_t step = 0; step < 2; ++step) {
        vectors g = layer_gradients(model, workers.rank()), at_once = g;
        gq::vector_group group;
        mean.begin(step);
        std::size_t const first = share == 0 ? 0 : model.size() - 1;
        std::size_t const its_group = mean.group_of(first);
        EXPECT_EQ(its_group, 0U);
        EXPECT_THAT(refusal([&] { mean.wait(first); }), HasSubstr("is not sent yet in step"));
        for (std::size_t k = 0; k < model.size(); ++k)
          if (mean.group_of(k) == its_group) mean.ready(k, g[k]);
        mean.wait(first);
        std::vector<float> const early = g[first];
        for (std::size_t k = model.size(); k-- != 0;)
          if (mean.group_of(k) != its_group) mean.ready(k, g[k]);
        for (std::size_t k = 0; k < model.size(); ++k) mean.wait(k);
        vectors const before = g;
        mean.wait();
        EXPECT_EQ(g, before);
        for (auto& v : at_once) group.add(v);
        whole(group, step);
        EXPECT_EQ(g, at_once);
        EXPECT_EQ(early, g[first]);
      }
      EXPECT_THAT(refusal([&] { mean.wait(0); }), HasSubstr("no step has begun"));
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
      if (step == 0) {
        mean.wait(6);  // sent before the layer with infinity
        for (std::size_t const k : {2U, 0U}) EXPECT_THROW(mean.wait(k), gq::non_finite_error);
      }
      if (step == 0)
        EXPECT_THROW(mean.wait(), gq::non_finite_error);
      else
        mean.wait();
    }
  });
}

/// The errors of the workers in a step, and in the step after it; the texts of all.
struct two_steps {
  std::vector<std::string> first, second;
};
/// @param step_of  step_of(mean, rank, gradients): one step of a worker
template <class Step>
two_steps errors_of(int n, std::vector<std::uint64_t> const& group_bytes, Step const& step_of) {
  gq::adapt::model_layout const model = seven_layers();
  two_steps all{std::vector<std::string>(static_cast<std::size_t>(n)), {}};
  all.second = all.first;
  auto const start = std::chrono::steady_clock::now();
  on_threads(n, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    overlapped_mean mean{workers,
                         model,
                         int8_operators(model),
                         gq::schedule::sra{},
                         {.group_bytes = group_bytes[r % group_bytes.size()]}};
    auto const text_of = [&](auto const& f) -> std::string {
      try {
        f();
      } catch (gq::disagreement_error const& e) {
        return std::string("disagreement: ") + e.what();
      } catch (gq::configuration_error const& e) {
        return std::string("configuration: ") + e.what();
      } catch (std::exception const& e) {
        return std::string("other: ") + e.what();
      }
      return "";
    };
    vectors g = layer_gradients(model, workers.rank());
    all.first[r] = text_of([&] { step_of(mean, workers.rank(), g); });
    all.second[r] = text_of([&] {
      mean.begin(2);
      for (std::size_t k = model.size(); k-- != 0;) mean.ready(k, g[k]);
      mean.wait();
    });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{10}) << "no deadline passed";
  return all;
}

TEST(OverlappedMean, a_layer_that_is_not_ready_on_one_worker_is_an_error_of_all) {
  for (int const n : {1, 2, 3})
    for (std::uint64_t const bytes : {1, 4 * 700, 1 << 20})
      for (std::size_t const missing : {6U, 2U, 0U}) {
        SCOPED_TRACE(std::to_string(n) + " workers, groups of " + std::to_string(bytes) + ", layer " +
                     std::to_string(missing));
        two_steps const got = errors_of(n, {bytes}, [&](auto& mean, int rank, vectors& g) {
          mean.begin(1);
          for (std::size_t k = g.size(); k-- != 0;)
            if (rank != n - 1 || k != missing) mean.ready(k, g[k]);
          mean.wait();
        });
        for (int r = 0; r < n; ++r) {
          std::string const& text = got.first[static_cast<std::size_t>(r)];
          EXPECT_THAT(text, testing::StartsWith(r == n - 1 ? "configuration: " : "disagreement: "));
          EXPECT_THAT(text, HasSubstr("was not ready at the end of step 1"));
          if (r != n - 1) {
            EXPECT_THAT(text, HasSubstr("rank " + std::to_string(n - 1) + " refused its arguments"));
          }
          EXPECT_EQ(got.second[static_cast<std::size_t>(r)], "");
        }
      }
}

// Every worker lacks another layer, and one of them has an error of its own before.
TEST(OverlappedMean, layers_that_are_not_ready_on_several_workers_are_an_error_of_all) {
  for (std::uint64_t const bytes : {1, 4 * 700}) {
    two_steps const got = errors_of(3, {bytes}, [&](auto& mean, int rank, vectors& g) {
      mean.begin(1);
      if (rank == 1) {
        EXPECT_THROW(mean.ready(6, g[5]), gq::configuration_error);
      }
      for (std::size_t k = g.size(); k-- != 0;)
        if (k != 6U - 3U * static_cast<std::size_t>(rank)) mean.ready(k, g[k]);
      mean.wait();
    });
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_THAT(got.first[r], HasSubstr("was not ready at the end of step 1"));
      EXPECT_EQ(got.second[r], "");
    }
  }
}

TEST(OverlappedMean, groups_of_other_layers_are_an_error_of_all_in_the_first_group) {
  for (std::uint64_t const other : {1, 4 * 700}) {
    two_steps const got = errors_of(3, {1 << 20, 1 << 20, other}, [](auto& mean, int, vectors& g) {
      mean.begin(1);
      for (std::size_t k = g.size(); k-- != 0;) mean.ready(k, g[k]);
      mean.wait();
    });
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_THAT(got.first[r], HasSubstr("other settings (rank 0: "));
      EXPECT_THAT(got.first[r], HasSubstr("groups from layers 0, rank 2: "));
      EXPECT_EQ(got.first[r], got.first[0]);
      EXPECT_THAT(got.second[r], testing::StartsWith("disagreement: ")) << "no worker waits for a group";
    }
  }
}

TEST(OverlappedMean, a_step_beyond_the_limit_on_one_worker_is_an_error_of_all) {
  two_steps const got = errors_of(3, {1}, [](auto& mean, int rank, vectors& g) {
    mean.begin(rank == 1 ? std::uint64_t{1} << 47 : 1);
    for (std::size_t k = g.size(); k-- != 0;) mean.ready(k, g[k]);
    mean.wait();
  });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_THAT(got.first[r], testing::StartsWith(r == 1 ? "configuration: " : "disagreement: "));
    EXPECT_THAT(got.first[r], HasSubstr("is above 2^48 - 1"));
    EXPECT_EQ(got.second[r], "");
  }
}

}  // namespace
