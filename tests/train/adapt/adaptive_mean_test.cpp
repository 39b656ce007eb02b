// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Bits and buckets that adapt: the same on all workers, within the budget, and the bits of layered_mean.

#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/train/adapt/accordion.hpp>
#include <globalq/train/adapt/adaptive_mean.hpp>
#include <globalq/train/adapt/chooser.hpp>
#include <globalq/train/adapt/selector.hpp>
#include <globalq/train/adapt/time_weights.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>

namespace gq = globalq;
using gq::adapt::adaptive_mean;
using gq::adapt::bits_and_bucket;
using gq::adapt::rule_of;
using support::on_threads;
using support::same_bits;
using testing::HasSubstr;

namespace {

gq::adapt::model_layout uneven_layers() {
  gq::adapt::model_layout m;
  m.add("embedding.weight", {64, 100}).add("embedding.bias", {100}).add("conv.weight", {8, 3, 7, 7});
  m.add("norm.gain", {60}).add("attention.weight", {40, 40}).add("none", {0}).add("head.weight", {10, 40});
  return m;
}

/// Gradients whose layers differ by powers of ten for each value: large layers have small ones.
std::vector<float> gradient(gq::adapt::model_layout const& model, int rank, std::uint64_t step) {
  std::vector<float> x = support::values(model.length(), rank + 17 * static_cast<int>(step));
  for (gq::adapt::layer const& l : model) {
    float const scale = std::pow(static_cast<float>(std::max<std::uint64_t>(l.size, 1)), -1.5F);
    for (std::uint64_t i = 0; i < l.size; ++i) x[l.offset + i] *= scale;
  }
  return x;
}

struct named_rule {
  char const* name;
  gq::adapt::rule how;
};
std::vector<named_rule> rules() {
  return {{"kmeans", rule_of(gq::adapt::cgx_kmeans{})},
          {"linear", rule_of(gq::adapt::cgx_linear{})},
          {"bayes", rule_of(gq::adapt::cgx_bayes{.evaluations = 20})},
          {"lgreco", rule_of(gq::adapt::lgreco{})}};
}

TEST(AdaptiveMean, begins_with_the_reference_and_changes_within_the_budget_on_all_workers_alike) {
  gq::adapt::model_layout const model = uneven_layers();
  for (named_rule const& r : rules())
    for (int n : {1, 2, 3, 5}) {
      SCOPED_TRACE(std::string(r.name) + ", n = " + std::to_string(n));
      std::mutex together;
      std::vector<std::vector<bits_and_bucket>> choices;
      std::vector<gq::adapt::choice_table> tables;
      gq::adapt::selection found;
      on_threads(n, [&](auto& workers) {
        gq::schedule::any const schedule{"sra"};
        adaptive_mean mean{
            workers,
            model,
            schedule,
            {.layers = {.call = {.seed = 3}, .warm_up = 1}, .choice = {.how = r.how}, .every = 3}};
        gq::adapt::chooser const reference(model, gq::adapt::filter::cgx());
        gq::adapt::layered_mean fixed{
            workers, model, reference.operators(), schedule, {.call = {.seed = 3}, .warm_up = 1}};
        gq::adapt::gradient_accumulator sum(model);
        for (std::uint64_t step = 0; step < 5; ++step) {
          auto x = gradient(model, workers.rank(), step), y = x;
          if (step < 3) sum.add(x);
          mean(x, step);
          fixed(y, step);
          EXPECT_TRUE(same_bits(x, y)) << "step " << step;
          if (step != 2) continue;
          ASSERT_TRUE(mean.found());
          fixed.assign(mean.chosen().operators());
          std::vector<bits_and_bucket> mine;
          for (std::size_t l = 0; l < model.size(); ++l) mine.push_back(mean.chosen().choice(l));
          std::scoped_lock const lock(together);
          choices.push_back(mine);
          found = *mean.found();
          std::vector<gq::any_quantizer> all;
          for (bits_and_bucket const& c : mean.chosen().options().candidates)
            all.push_back(gq::adapt::cgx_quantizer(c));
          tables.push_back(measure(sum, gq::adapt::quantizers(all), [](gq::adapt::layer const& l) {
            return l.shape.size() > 1 && l.size != 0;
          }));
        }
        EXPECT_EQ(mean.chosen().accumulated().steps(), 2U) << "added up since the choice";
      });
      ASSERT_EQ(choices.size(), static_cast<std::size_t>(n));
      for (auto const& c : choices) EXPECT_EQ(c, choices[0]);
      bits_and_bucket const plain{32, 0};
      EXPECT_EQ(choices[0][1], plain) << "a bias is quantized";
      EXPECT_EQ(choices[0][3], plain) << "a normalization is quantized";
      // errors of all workers' sums, and those of 4 bits in buckets of 128
      double error = 0, budget = 0, cost = 0, uniform_cost = 0;
      for (auto const& t : tables) {
        error += t.error(found.choices);
        auto const uniform = gq::adapt::uniform_choice(t, 2);
        budget += t.error(uniform);
        cost = t.cost(found.choices);
        uniform_cost = t.cost(uniform);
      }
      EXPECT_LE(error, budget * (1 + 1e-12));
      EXPECT_NEAR(found.error, error, 1e-9 * error);
      EXPECT_LE(cost, uniform_cost);
      // a value more in the large layer costs what it costs in a small one, and errs less by much
      EXPECT_LT(cost, 0.95 * uniform_cost) << "there is much to gain here";
      EXPECT_LT(choices[0][0].bits, choices[0][6].bits)
          << "the largest layer of smallest gradients has more bits";
    }
}

TEST(AdaptiveMean, workers_over_nodes_have_the_same_bits) {
  gq::adapt::model_layout const model = uneven_layers();
  std::vector<std::vector<float>> results(5);
  on_threads(5, [&](auto& workers) {
    adaptive_mean mean{workers, model, gq::schedule::hierarchical<>(2), {.every = 2}};
    auto& mine = results[static_cast<std::size_t>(workers.rank())];
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto x = gradient(model, workers.rank(), step);
      mean(x, step);
      mine.insert(mine.end(), x.begin(), x.end());
    }
  });
  for (auto const& r : results) EXPECT_TRUE(same_bits(r, results[0]));
}

TEST(AdaptiveMean, nothing_changes_where_a_worker_has_only_nan) {
  gq::adapt::model_layout const model = uneven_layers();
  on_threads(3, [&](auto& workers) {
    adaptive_mean mean{workers, model, gq::schedule::any{"sra"}, {.every = 2}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto x = gradient(model, workers.rank(), step);
      if (workers.rank() == 1 && step < 2) x[5] = std::numeric_limits<float>::quiet_NaN();
      mean(x, step);
      if (step == 1) {
        EXPECT_FALSE(mean.found());
        EXPECT_EQ(mean.chosen().choice(0), (bits_and_bucket{4, 128}));
      }
    }
    EXPECT_TRUE(mean.found()) << "gradients were fine since";
  });
}

TEST(AdaptiveMean, never_is_an_option) {
  gq::adapt::model_layout const model = uneven_layers();
  on_threads(2, [&](auto& workers) {
    adaptive_mean mean{workers, model, gq::schedule::any{"ring"}, {.every = 0}};
    auto x = gradient(model, workers.rank(), 0);
    mean(x, 0);
    EXPECT_FALSE(mean.found());
    EXPECT_EQ(mean.chosen().accumulated().steps(), 0U);
  });
}

TEST(AdaptiveMean, workers_that_differ_in_the_budget_hear_of_it) {
  gq::adapt::model_layout const model = uneven_layers();
  auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
    adaptive_mean mean{workers,
                       model,
                       gq::schedule::any{"sra"},
                       {.choice = {.alpha = workers.rank() == 2 ? 2.0 : 1.0}, .every = 1}};
    auto x = gradient(model, workers.rank(), 0);
    mean(x, 0);
  });
  for (std::string const& text : texts) EXPECT_THAT(text, HasSubstr("worker 2 has"));
}

TEST(AdaptiveMean, a_budget_that_no_map_keeps_is_an_error_of_all) {
  gq::adapt::model_layout const model = uneven_layers();
  auto const texts = support::complaints<gq::configuration_error>(3, [&](auto& workers) {
    adaptive_mean mean{workers, model, gq::schedule::any{"sra"}, {.choice = {.alpha = 1e-9}, .every = 1}};
    auto x = gradient(model, workers.rank(), 0);
    mean(x, 0);
  });
  for (std::string const& text : texts) EXPECT_THAT(text, HasSubstr("raise alpha"));
}

TEST(Chooser, keeps_candidates_of_the_reference_s_bits_where_the_reference_is_one_of_them) {
  gq::adapt::chooser const c(uneven_layers(), gq::adapt::filter::cgx(),
                             {.candidates = {{4, 1024}, {4, 128}, {8, 128}}, .reference = {4, 128}});
  EXPECT_EQ(c.options().candidates, (std::vector<bits_and_bucket>{{4, 1024}, {4, 128}, {8, 128}}));
  EXPECT_EQ(c.choice(0), (bits_and_bucket{4, 128}));
}

/// A worker that cannot measure must not leave the others waiting.
TEST(Chooser, a_table_that_one_worker_cannot_make_is_its_error_and_no_choice_of_the_others) {
  gq::adapt::model_layout const model = uneven_layers();
  on_threads(3, [&](auto& workers) {
    gq::adapt::chooser_options options;
    options.make = [](bits_and_bucket const& p) -> gq::any_quantizer {
      return gq::quantizer{gq::norm::fixed{.scale = 1}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                           gq::wire::packed<>{p.bits}};
    };
    gq::adapt::chooser c(model, gq::adapt::filter::cgx(), options);
    std::vector<float> x(model.length(), workers.rank() == 1 ? 3.0F : 0.5F);
    c.add(x);
    if (workers.rank() == 1)
      EXPECT_THAT(support::refusal([&] { c.choose(workers, 0); }), HasSubstr("exceeds the scale"));
    else
      EXPECT_FALSE(c.choose(workers, 0));
  });
}

/// Whatever a measure of one's own throws: the others must not wait until their deadline.
TEST(Chooser, what_a_sensitivity_throws_is_thrown_on_its_worker_and_no_choice_of_the_others) {
  gq::adapt::model_layout const model = uneven_layers();
  for (int kind : {0, 1, 2})
    on_threads(3, [&](auto& workers) {
      gq::adapt::chooser_options options;
      options.measure_by = [&](gq::adapt::layer const&, std::size_t, std::span<float const>) -> double {
        if (workers.rank() != 1) return 1;
        if (kind == 0) throw std::runtime_error("out of data");
        if (kind == 1) throw std::bad_alloc();
        throw 7;
      };
      gq::adapt::chooser c(model, gq::adapt::filter::cgx(), options);
      c.add(gradient(model, workers.rank(), 0));
      if (workers.rank() != 1) {
        EXPECT_FALSE(c.choose(workers, 0));
        return;
      }
      if (kind == 0) {
        EXPECT_THROW(c.choose(workers, 0), std::runtime_error);
      }
      if (kind == 1) {
        EXPECT_THROW(c.choose(workers, 0), std::bad_alloc);
      }
      if (kind == 2) {
        EXPECT_THROW(c.choose(workers, 0), int);
      }
      EXPECT_EQ(c.accumulated().steps(), 0U);
    });
}

TEST(Chooser, what_a_rule_throws_is_an_error_of_all) {
  gq::adapt::model_layout const model = uneven_layers();
  for (bool standard : {true, false}) {
    auto const texts = support::complaints<gq::configuration_error>(3, [&](auto& workers) {
      gq::adapt::chooser_options options;
      options.how = [&](auto&&...) -> gq::adapt::selection {
        if (standard) throw std::runtime_error("no rule today");
        throw 7;
      };
      gq::adapt::chooser c(model, gq::adapt::filter::cgx(), options);
      c.add(gradient(model, workers.rank(), 0));
      c.choose(workers, 0);
    });
    for (std::string const& text : texts)
      EXPECT_THAT(text, HasSubstr(standard ? "no rule today" : "the solver threw an exception"));
  }
}

/// A sensitivity that calls one layer's errors far larger gives it the bits that the others lose.
TEST(Chooser, measures_by_a_sensitivity_of_one_s_own) {
  gq::adapt::model_layout const model = uneven_layers();
  auto const choice_by = [&](gq::adapt::sensitivity const& measure_by) {
    std::vector<bits_and_bucket> all;
    on_threads(1, [&](auto& workers) {
      gq::adapt::chooser c(model, gq::adapt::filter::cgx(),
                           {.candidates = {{2, 128}, {4, 128}, {8, 128}},
                            .alpha = 2,
                            .how = rule_of(gq::adapt::lgreco{}),
                            .measure_by = measure_by});
      c.add(gradient(model, 0, 0));
      ASSERT_TRUE(c.choose(workers, 0));
      for (std::size_t l = 0; l < model.size(); ++l) all.push_back(c.choice(l));
    });
    return all;
  };
  // the same for each value of all layers but one
  auto const measure_by = [&](gq::adapt::layer const& l, std::size_t candidate, std::span<float const> x) {
    EXPECT_EQ(x.size(), l.size);
    double const bits = candidate == 0 ? 2 : candidate == 1 ? 4 : 8;
    return (l.name == model[0].name ? 1e6 : 1.0) * static_cast<double>(l.size) * std::pow(4.0, -bits);
  };
  EXPECT_EQ(choice_by(nullptr)[0].bits, 2U) << "the largest layer, of the smallest gradients";
  std::vector<bits_and_bucket> const found = choice_by(measure_by);
  // twice its error is not sixteen times, but lets all others have two bits
  EXPECT_EQ(found[0].bits, 4U);
  for (std::size_t l : {2U, 4U, 6U}) EXPECT_EQ(found[l].bits, 2U);
}

TEST(Chooser, chooses_by_time) {
  // Two layers alike in size and gradients; a byte of one takes a thousand times as long. With 1 level instead of 7 an error is
  // about 49 times as large, so 40 times the error of both, 80 of one, is enough for one of the two.
  gq::adapt::model_layout model;
  model.add("first", {64, 64}).add("second", {64, 64});
  for (bool swapped : {false, true})
    on_threads(2, [&](auto& workers) {
      gq::adapt::time_regression times(2);
      gq::adapt::chooser c(model, {},
                           {.candidates = {{2, 128}, {4, 128}, {8, 128}},
                            .alpha = 40,
                            .how = gq::adapt::by_time(rule_of(gq::adapt::lgreco{}), {swapped, !swapped},
                                                      [&] { return times.fit(); })});
      std::vector<float> x(model.length());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 64) / 64;
      c.add(x);
      if (workers.rank() == 0)  // the other one need not measure
        for (double a : {1e3, 2e3, 3e3})
          for (double b : {1e3, 2e3}) times.add(std::vector<double>{a, b}, 1e-3 * a + 1e-6 * b);
      auto const found = c.choose(workers, 0);
      ASSERT_TRUE(found);
      std::size_t const slow = swapped ? 1 : 0;
      EXPECT_LT(c.choice(slow).bits, c.choice(1 - slow).bits);
      double const bytes_of_two_bits = c.table()[0][0].cost;
      EXPECT_NEAR(found->cost, 1e-3 * bytes_of_two_bits, 0.01 * found->cost) << "seconds";
    });
}

/// The first window is critical, so it runs with little compression where that is the reference.
TEST(AccordionRule, begins_with_less_compression_where_that_is_the_reference) {
  gq::adapt::model_layout const model = uneven_layers();
  for (bool with_lgreco : {false, true})
    on_threads(2, [&](auto& workers) {
      gq::adapt::rule const within = with_lgreco ? rule_of(gq::adapt::lgreco{}) : nullptr;
      gq::schedule::any const schedule{"sra"};
      adaptive_mean mean{
          workers,
          model,
          schedule,
          {.choice = {.reference = {8, 64},
                      .how = gq::adapt::accordion_rule({.less = 6, .more = 1, .within = within})},
           .every = 2}};
      gq::adapt::layered_mean eight{
          workers, model,
          gq::adapt::operators_of(model, gq::adapt::filter::cgx(), gq::adapt::cgx_quantizer({8, 64})),
          schedule};
      double first = 0;
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto x = gradient(model, workers.rank(), 0), y = x;
        mean(x, step);
        eight(y, step);
        if (step < 2) {
          EXPECT_TRUE(same_bits(x, y)) << step;
        }
        if (step == 1) {
          ASSERT_TRUE(mean.found());
          first = mean.found()->cost;
          if (!with_lgreco) {
            EXPECT_EQ(mean.chosen().choice(0), (bits_and_bucket{8, 64}));
          }
        }
      }
      EXPECT_LT(mean.found()->cost, first) << "the gradients do not change";
      if (!with_lgreco) {
        EXPECT_EQ(mean.chosen().choice(0), (bits_and_bucket{3, 512}));
      }
    });
}

TEST(Selector, refuses_choices_of_other_layers_and_of_candidates_that_there_are_not) {
  gq::adapt::model_layout model;
  model.add("weight", {8, 8}).add("bias", {8});
  gq::adapt::selector s(model, {.of = gq::adapt::top_k({0.1, 0.5}),
                                .compress = [](gq::adapt::layer const& l) { return l.name == "weight"; },
                                .how = rule_of(gq::adapt::lgreco{}),
                                .candidates = 2});
  EXPECT_THAT(support::refusal([&] { s.assign({1}); }), HasSubstr("1 choices for 2 layers"));
  EXPECT_THAT(support::refusal([&] {
                s.assign({2, 0});
              }),
              HasSubstr("choice 2 for weight, which has 2 candidates"));
  EXPECT_EQ(s.choices(), (std::vector<std::uint32_t>{0, 0}));
  s.assign({1, 9});  // a bias has no choice
  EXPECT_EQ(s.choices(), (std::vector<std::uint32_t>{1, 9}));
}

TEST(Chooser, refuses_a_reference_that_is_no_candidate_and_budgets_that_are_none) {
  EXPECT_THAT(support::refusal([] {
                gq::adapt::chooser{uneven_layers(), gq::adapt::filter::cgx(), {.reference = {9, 128}}};
              }),
              HasSubstr("none of the 7 candidates has the 9 bits of the reference"));
  EXPECT_THAT(support::refusal([] {
                gq::adapt::chooser{uneven_layers(), gq::adapt::filter::cgx(), {.alpha = std::nan("")}};
              }),
              HasSubstr("alpha is nan"));
}

}  // namespace
