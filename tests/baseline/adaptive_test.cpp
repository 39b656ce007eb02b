// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Densities of layers that change while training: the same on all workers, within the budget, nothing lost.

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/train/adapt/accordion.hpp>
#include <globalq/train/adapt/kept_values.hpp>
#include <globalq/train/adapt/rule.hpp>
#include <globalq/train/adapt/selector.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>

#include "tests/baseline/cases.hpp"
#include "tests/support/refusal.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

namespace {

/// Layers whose largest values hold very different shares of the whole: L-GreCo gives them different densities.
gq::adapt::model_layout model() {
  gq::adapt::model_layout m;
  m.add("spiky", {300}).add("none", {0}).add("flat", {20, 30}).add("steep", {16, 25});
  return m;
}
vector gradient(unsigned seed) {
  vector x = cases::values(model().length(), seed);
  for (std::size_t i = 0; i < 300; ++i)
    if (i % 100 != seed % 7) x[i] /= 1024;
  for (std::size_t i = 900; i < 1300; ++i) x[i] /= static_cast<float>(1U << (i % 16));
  return x;
}

cp::adaptive_options<double> options(std::uint64_t every, gq::adapt::rule how = {}) {
  cp::adaptive_options<double> o{.candidates = gq::adapt::around(0.1, 9), .reference = 0.1, .every = every};
  if (how) o.how = std::move(how);
  return o;
}
cp::top_k sparse() { return cp::top_k{model(), {.density = 0.1}, {.seed = 5}}; }

TEST(Adaptive, begins_with_the_reference_then_costs_no_more_within_its_error_on_all_workers_alike) {
  for (int n : {1, 2, 3, 5}) {
    SCOPED_TRACE(n);
    std::vector<std::vector<double>> densities(static_cast<std::size_t>(n));
    std::vector<gq::adapt::choice_table> tables(static_cast<std::size_t>(n));
    std::vector<vector> means(static_cast<std::size_t>(n));
    gq::adapt::selection found;
    std::uint64_t before = 0, after = 0;
    support::on_threads(n, [&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      cp::adaptive mean{sparse(), options(3)};
      cp::error_feedback fixed{sparse()};
      gq::adapt::gradient_accumulator sum(model());
      vector y(model().length()), z(model().length());
      if (r == 0) before = mean.feedback().inner().count();
      for (std::uint64_t step = 0; step < 5; ++step) {
        vector const g = gradient(static_cast<unsigned>(10 * step) + static_cast<unsigned>(r));
        EXPECT_EQ(mean.reduce(workers, g, y, step), cp::outcome::mean);
        if (step > 2) continue;
        sum.add(g);
        fixed.reduce(workers, g, z, step);
        EXPECT_TRUE(cases::same_bits(y, z)) << step;
        EXPECT_EQ(mean.found().has_value(), step == 2);
      }
      means[r] = y;
      for (std::size_t l = 0; l < model().size(); ++l) densities[r].push_back(mean.parameter_of(l));
      tables[r] = gq::adapt::measure(sum, gq::adapt::top_k(gq::adapt::around(0.1, 9)),
                                     [](gq::adapt::layer const& l) { return l.size != 0; });
      if (r == 0) {
        found = *mean.found();
        after = mean.feedback().inner().count();
      }
    });
    for (int r = 1; r < n; ++r) {
      EXPECT_EQ(densities[static_cast<std::size_t>(r)], densities[0]);
      EXPECT_TRUE(cases::same_bits(means[static_cast<std::size_t>(r)], means[0]));
    }
    double reference = 0, chosen = 0;
    for (auto const& table : tables) {
      reference += table.error(gq::adapt::uniform_choice(table, 4));
      chosen += table.error(found.choices);
    }
    EXPECT_LE(chosen, reference * (1 + 1e-12));
    EXPECT_LT(after, before);  // what is sent, by the compressor's own count
    std::uint64_t wanted = 0;
    for (std::size_t l = 0; l < model().size(); ++l)
      if (model()[l].size != 0) wanted += gq::adapt::kept_values(model()[l].size, densities[0][l]);
    EXPECT_EQ(after, wanted);
    EXPECT_EQ(static_cast<double>(after) * 8, found.cost);
  }
}

TEST(Adaptive, nothing_is_lost_when_densities_change) {
  int const n = 3;
  std::uint64_t const d = model().length();
  std::vector<std::vector<double>> left(3, std::vector<double>(d)), sent(3, std::vector<double>(d));
  support::on_threads(n, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    cp::adaptive mean{sparse(), options(4)};
    vector y(d);
    for (unsigned t = 0; t < 20; ++t) {
      vector const g = gradient(100 * t + static_cast<unsigned>(r));
      ASSERT_EQ(mean.reduce(workers, g, y, t), cp::outcome::mean);
      for (std::size_t i = 0; i < d; ++i) {
        sent[r][i] += static_cast<double>(y[i]);
        left[r][i] += static_cast<double>(g[i]);
      }
    }
    for (std::size_t i = 0; i < d; ++i) left[r][i] -= static_cast<double>(mean.feedback().error()[i]);
  });
  for (std::size_t i = 0; i < d; ++i) {
    // values are multiples of 2^-15 below 1,000; sums of 20 round by 2^-10 at most, 20 times, and each mean once
    EXPECT_NEAR(sent[0][i], (left[0][i] + left[1][i] + left[2][i]) / n, 0.05) << i;
  }
}

TEST(Adaptive, accordion_gives_changing_layers_more_and_the_others_less) {
  gq::adapt::rule const rules[] = {
      gq::adapt::accordion_rule({.less = 8, .more = 0}),
      gq::adapt::accordion_rule({.less = 8, .more = 0, .within = gq::adapt::rule_of(gq::adapt::lgreco{})})};
  for (int which : {0, 1}) {
    SCOPED_TRACE(which);
    support::on_threads(2, [&](auto& workers) {
      cp::adaptive mean{sparse(), options(1, rules[which])};
      vector y(model().length());
      auto const of = [&](std::size_t layer) { return mean.parameter_of(layer); };
      vector g = gradient(3);
      mean.reduce(workers, g, y, 0);  // the first window is critical everywhere
      double const first = mean.found()->cost;
      if (which == 0) {
        EXPECT_EQ(of(0), 0.2);
        EXPECT_EQ(of(2), 0.2);
      }
      for (std::size_t i = 300; i < 900; ++i) g[i] *= 2;  // the flat layer changes, the others have settled
      mean.reduce(workers, g, y, 1);
      if (which == 0) {
        EXPECT_EQ(of(0), 0.05);
        EXPECT_EQ(of(2), 0.2);
        EXPECT_EQ(of(3), 0.05);
      }
      EXPECT_LT(mean.found()->cost, first);
      // L-GreCo at Accordion's error is never dearer than Accordion
      double const alone =
          8 * static_cast<double>(gq::adapt::kept_values(300, 0.05) + gq::adapt::kept_values(600, 0.2) +
                                  gq::adapt::kept_values(400, 0.05));
      EXPECT_LE(mean.found()->cost, alone);
      if (which == 0) {
        EXPECT_EQ(mean.found()->cost, alone);
      }
    });
  }
}

TEST(Adaptive, what_was_saved_goes_on_bit_for_bit) {
  support::on_threads(2, [&](auto& workers) {
    vector y(model().length()), z(model().length());
    cp::adaptive mean{sparse(), options(3)};
    std::uint64_t step = 0;
    auto const next = [&] {
      return gradient(static_cast<unsigned>(7 * step) + static_cast<unsigned>(workers.rank()));
    };
    for (; step < 3; ++step) mean.reduce(workers, next(), y, step);
    auto const bytes = mean.save(2, workers.rank()).bytes();
    cp::adaptive other{sparse(), options(3)};
    EXPECT_NE(other.parameter_of(0), mean.parameter_of(0));
    cp::state const saved = cp::state::parse(bytes);
    other.load({&saved, 1}, 2, workers.rank());
    for (std::size_t l = 0; l < model().size(); ++l) EXPECT_EQ(other.parameter_of(l), mean.parameter_of(l));
    for (; step < 10; ++step) {  // two more choices
      mean.reduce(workers, next(), y, step);
      other.reduce(workers, next(), z, step);
      EXPECT_TRUE(cases::same_bits(y, z)) << step;
    }
    // fewer candidates than were chosen among
    cp::adaptive_options<double> few{.candidates = {0.1}, .reference = 0.1};
    cp::adaptive narrow{sparse(), few};
    EXPECT_THAT(support::refusal<gq::frame_error>([&] {
                  narrow.load({&saved, 1}, 2, workers.rank());
                }),
                HasSubstr("of 1; load a state saved with the same candidates"));
    EXPECT_EQ(narrow.parameter_of(0), 0.1);
    EXPECT_THAT(narrow.feedback().error(), Each(0.0F));
    // as many, ten times as large
    cp::adaptive larger{cp::top_k{model(), {.density = 1}},
                        {.candidates = gq::adapt::around(0.5, 9), .reference = 0.5}};
    EXPECT_THAT(support::refusal<gq::frame_error>([&] {
                  larger.load({&saved, 1}, 2, workers.rank());
                }),
                AllOf(HasSubstr("layer \"spiky\" had 0.0"), HasSubstr(" and would have 0."),
                      HasSubstr("load a state saved with the same candidates and reference")));
    EXPECT_EQ(larger.parameter_of(0), 0.5);
    EXPECT_THAT(larger.feedback().error(), Each(0.0F));
    // other candidates, of which no layer had one, are not missed
    auto others = options(3);
    std::uint32_t unused = 8;
    for (std::size_t l = 0; l < model().size(); ++l)
      if (mean.parameter_of(l) == others.candidates[8]) unused = 0;
    others.candidates[unused] *= 1.5;
    cp::adaptive alike{sparse(), others};
    EXPECT_NO_THROW(alike.load({&saved, 1}, 2, workers.rank()));
  });
}

TEST(Adaptive, another_number_of_workers_goes_on_with_the_same_densities_and_the_same_means) {
  for (int before : {1, 3})
    for (int after : {2, 5}) {
      SCOPED_TRACE(std::to_string(before) + " to " + std::to_string(after));
      auto const g = [](std::uint64_t step, int rank) {
        return gradient(static_cast<unsigned>(7 * step) + static_cast<unsigned>(rank));
      };
      std::vector<cp::state> saved(static_cast<std::size_t>(before));
      std::vector<double> had;
      support::on_threads(before, [&](auto& workers) {
        cp::adaptive mean{sparse(), options(3)};
        vector y(model().length());
        for (std::uint64_t step = 0; step < 4; ++step) mean.reduce(workers, g(step, workers.rank()), y, step);
        auto const bytes = mean.save(before, workers.rank()).bytes();
        saved[static_cast<std::size_t>(workers.rank())] = cp::state::parse(bytes);
        if (workers.rank() == 0)
          for (std::size_t l = 0; l < model().size(); ++l) had.push_back(mean.parameter_of(l));
      });
      EXPECT_NE(had, std::vector<double>(model().size(), 0.1));
      std::vector<vector> means(static_cast<std::size_t>(after));
      std::vector<std::vector<double>> has(static_cast<std::size_t>(after));
      support::on_threads(after, [&](auto& workers) {
        auto const r = static_cast<std::size_t>(workers.rank());
        cp::adaptive mean{sparse(), options(3)};
        mean.load(saved, after, workers.rank());
        for (std::size_t l = 0; l < model().size(); ++l) EXPECT_EQ(mean.parameter_of(l), had[l]);
        vector y(model().length());
        for (std::uint64_t step = 4; step < 9; ++step) {  // one more choice
          mean.reduce(workers, g(step, workers.rank()), y, step);
          means[r].insert(means[r].end(), y.begin(), y.end());
        }
        EXPECT_TRUE(mean.found());
        for (std::size_t l = 0; l < model().size(); ++l) has[r].push_back(mean.parameter_of(l));
      });
      EXPECT_THAT(has, Each(has[0]));
      for (vector const& m : means) EXPECT_TRUE(cases::same_bits(m, means[0]));
    }
}

TEST(Adaptive, a_worker_without_numbers_leaves_all_as_it_was) {
  support::on_threads(2, [&](auto& workers) {
    cp::adaptive mean{sparse(), options(1)};
    vector y(model().length()), g = gradient(1);
    if (workers.rank() == 1) g[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(mean.reduce(workers, g, y, 0), cp::outcome::not_finite);
    EXPECT_FALSE(mean.found());
    EXPECT_EQ(mean.parameter_of(0), 0.1);
  });
}

TEST(Adaptive, an_own_family_and_own_layers) {
  auto o = options(1);
  o.compress = [](gq::adapt::layer const& l) { return l.name != "flat"; };
  o.of = [](gq::adapt::layer const&, std::span<float const>) {
    std::vector<gq::adapt::candidate> all;
    for (int k = 0; k < 9; ++k)
      all.push_back({static_cast<double>(9 - k), k == 8 ? 0.0 : 1.0});  // the last: both
    return all;
  };
  support::on_threads(2, [&](auto& workers) {
    cp::adaptive mean{sparse(), o};
    vector y(model().length());
    mean.reduce(workers, gradient(1), y, 0);
    EXPECT_EQ(mean.parameter_of(0), 0.2);
    EXPECT_EQ(mean.parameter_of(2), 0.1);
  });
}

TEST(Adaptive, forced_float32_chooses_nothing) {
  setenv("GLOBALQ_FORCE_FLOAT32", "1", 1);
  support::on_threads(2, [&](auto& workers) {
    cp::adaptive mean{sparse(), options(1)};
    vector y(model().length());
    mean.reduce(workers, gradient(1), y, 0);
    EXPECT_FALSE(mean.found());
    EXPECT_EQ(mean.parameter_of(0), 0.1);
  });
  unsetenv("GLOBALQ_FORCE_FLOAT32");
}

TEST(Adaptive, says_what_does_not_go_together) {
  EXPECT_THAT(support::refusal([] {
                return cp::adaptive{sparse(), {.candidates = {0.1, 0.2}, .reference = 0.15}};
              }),
              HasSubstr("the reference 0.150000 is not among the 2 candidates; add it"));
  EXPECT_THAT(support::refusal([] {
                return cp::adaptive{sparse(), {.candidates = {0.1}, .reference = 0.1, .alpha = -1}};
              }),
              HasSubstr("alpha is -1"));
  EXPECT_THAT(support::refusal([] {
                return cp::adaptive{cp::top_k{model(), {.scope = cp::scope::whole}},
                                    {.candidates = {0.1}, .reference = 0.1}};
              }),
              HasSubstr("scope::whole selects from all layers together"));
}

TEST(Adaptive, workers_that_choose_among_others_learn_it) {
  std::mutex together;
  std::vector<std::string> said;
  support::on_threads(2, [&](auto& workers) {
    auto o = options(1);
    if (workers.rank() == 1) o.alpha = 0.5;
    cp::adaptive mean{sparse(), o};
    vector y(model().length());
    std::string const text =
        support::refusal<gq::disagreement_error>([&] { mean.reduce(workers, gradient(1), y, 0); });
    std::lock_guard const lock(together);
    said.push_back(text);
  });
  EXPECT_THAT(said, Each(HasSubstr("settings")));
}

}  // namespace
