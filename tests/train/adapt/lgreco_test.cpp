// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief L-GreCo: against all choices of small problems, budgets to the last bit, and what is refused.

#include <globalq/train/adapt/lgreco.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace ad = globalq::adapt;
using testing::HasSubstr;

namespace {

using method = ad::lgreco::method;
constexpr double never = std::numeric_limits<double>::infinity();

/// Every choice of a table.
void for_each_choice(ad::choice_table const& table,
                     std::function<void(std::vector<std::uint32_t> const&)> const& use) {
  std::vector<std::uint32_t> c(table.size(), 0);
  for (;;) {
    use(c);
    std::size_t l = 0;
    while (l < c.size() && ++c[l] == table[l].size()) c[l++] = 0;
    if (l == c.size()) return;
  }
}

/// The least cost of all choices that keep a budget.
double least_cost(ad::choice_table const& table, double budget) {
  double least = never;
  for_each_choice(table, [&](auto const& c) {
    if (table.within(c, budget)) least = std::min(least, table.cost(c));
  });
  return least;
}

/// Integer costs, so that sums are exact in any order. Kinds differ in how costs and errors go together.
ad::choice_table problem(std::uint32_t seed, std::size_t layers, int kind) {
  std::mt19937 draw(seed);
  auto const unit = [&] { return static_cast<double>(draw() >> 8) * 0x1p-24; };
  ad::choice_table table;
  for (std::size_t l = 0; l < layers; ++l) {
    std::size_t const count = 1 + draw() % 5;
    std::vector<ad::candidate> of;
    double const size = static_cast<double>(1 + draw() % 1000), norm = std::exp(6 * unit());
    for (std::size_t c = 0; c < count; ++c) {
      double const bits = static_cast<double>(c + 2);
      if (kind == 0) of.push_back({static_cast<double>(draw() % 100), unit()});
      if (kind == 1) of.push_back({size * bits, size * norm * std::pow(4.0, -bits)});
      if (kind == 2)
        of.push_back({static_cast<double>(draw() % 4), static_cast<double>(draw() % 4)});  // ties, zeros
      if (kind == 3)
        of.push_back({static_cast<double>(draw() % 100), std::exp(140 * (unit() - 0.5))});   // 60 decades
      if (kind == 4) of.push_back({static_cast<double>(draw() % 100), unit() * 0x1p-1060});  // subnormal
    }
    table.add(of);
  }
  return table;
}
constexpr int kinds = 5;

/// Budgets that are interesting: those of some choice, to the bit.
double budget_for(ad::choice_table const& table, std::uint32_t seed) {
  std::mt19937 draw(seed + 99);
  std::vector<std::uint32_t> c;
  for (std::size_t l = 0; l < table.size(); ++l)
    c.push_back(draw() % static_cast<std::uint32_t>(table[l].size()));
  return table.error(c);
}

TEST(Lgreco, finds_the_optimum_of_small_problems) {
  int interesting = 0;
  for (int kind = 0; kind < kinds; ++kind)
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
      ad::choice_table const table = problem(seed, 1 + seed % 6, kind);
      double const budget = budget_for(table, seed);
      ad::selection const s = ad::lgreco{}(table, budget);
      double const least = least_cost(table, budget);
      ASSERT_TRUE(s.optimal) << kind << " " << seed;
      ASSERT_EQ(s.cost, least) << kind << " " << seed;
      ASSERT_TRUE(table.within(s.choices, budget));
      ASSERT_EQ(s.cost, table.cost(s.choices));
      ASSERT_EQ(s.error, table.error(s.choices));
      ASSERT_LE(s.lower_bound, s.cost);
      ASSERT_GE(s.lower_bound, s.cost * (1 - 1e-9));
      interesting += s.choices != ad::detail::most_accurate(table);
    }
  EXPECT_GT(interesting, 700);
}

TEST(Lgreco, on_a_grid_is_at_least_as_good_as_the_optimum_of_the_rounded_problem) {
  int worse = 0;
  for (int kind = 0; kind < kinds; ++kind)
    for (std::uint32_t seed = 0; seed < 100; ++seed)
      for (std::uint32_t steps : {1U, 7U, 100U, 10000U}) {
        ad::choice_table const table = problem(seed, 1 + seed % 6, kind);
        double const budget = budget_for(table, seed), true_least = least_cost(table, budget);
        // The definition: errors in steps, rounded up; long double has 11 bits more, enough for these 10,000 steps
        double rounded_least = never;
        for_each_choice(table, [&](auto const& c) {
          std::uint64_t sum = 0;
          for (std::size_t l = 0; l < c.size(); ++l) {
            long double const e = static_cast<long double>(table[l][c[l]].error);
            sum += e == 0 ? 0
                          : static_cast<std::uint64_t>(std::min(
                                static_cast<long double>(steps) + 1,
                                std::ceil(e / static_cast<long double>(budget) * steps * (1 + 0x1p-50L))));
          }
          if (sum <= steps) rounded_least = std::min(rounded_least, table.cost(c));
        });
        ad::selection const s = ad::lgreco{.how = method::grid, .steps = steps}(table, budget);
        ASSERT_TRUE(table.within(s.choices, budget)) << kind << " " << seed << " " << steps;
        ASSERT_LE(s.cost, rounded_least) << kind << " " << seed << " " << steps;
        ASSERT_GE(s.cost, true_least);
        ASSERT_LE(s.lower_bound, true_least);
        // what rounding up costs: never more than a budget that is one step a layer smaller
        double const smaller = budget * (1 - (static_cast<double>(table.size()) + 1e-9) / steps);
        if (smaller >= 0 && kind != 4) {  // subnormal numbers are too coarse to say so
          ASSERT_LE(s.cost, least_cost(table, smaller)) << kind << " " << seed << " " << steps;
        }
        worse += s.cost > true_least;
      }
  EXPECT_GT(worse, 0);  // or the last lines have compared nothing
}

TEST(Lgreco, grid_steps_never_round_down) {
  std::mt19937_64 draw(5);
  for (int k = 0; k < 20000; ++k) {
    double const budget =
        std::ldexp(static_cast<double>(draw() >> 11), static_cast<int>(draw() % 2000) - 1074 - 53);
    if (budget == 0 || !globalq::is_finite(budget)) continue;
    std::uint32_t const steps = 1 + static_cast<std::uint32_t>(draw() % 20000);
    ad::detail::error_grid const grid(budget, steps);
    double const error = budget * (static_cast<double>(draw() >> 11) * 0x1p-53);
    std::uint32_t const taken = grid(error);
    EXPECT_EQ(grid(0), 0U);
    EXPECT_LE(grid(budget), steps + 1);
    EXPECT_EQ(grid(std::nextafter(budget, never)), steps + 1);
    if (taken > steps) continue;
    // steps errors of this kind that fit on the grid fit into the budget, exactly
    ad::detail::exact_sum sum;
    if (taken == 0) {
      EXPECT_EQ(error, 0.0);
      continue;
    }
    for (std::uint32_t used = 0; used + taken <= steps; used += taken) sum.add(error);
    EXPECT_TRUE(sum <= ad::detail::exact_sum(budget)) << budget << " " << error << " " << steps;
  }
}

TEST(Lgreco, never_costs_more_than_a_reference_within_the_budget) {
  // The budget is the reference's own error, which leaves no room for rounding up at all.
  for (method how : {method::search, method::grid})
    for (std::uint32_t steps : {1U, 50U, 10000U})
      for (std::uint32_t seed = 0; seed < 25; ++seed) {
        ad::choice_table table;
        std::mt19937 draw(seed);
        for (int l = 0; l < 100; ++l) {
          std::vector<ad::candidate> of;
          double const size = static_cast<double>(64 + draw() % 4096), norm = 1 + draw() % 7;
          for (int bits = 2; bits <= 8; ++bits)
            of.push_back({size * bits / 8, size * norm * std::pow(4.0, -bits) / 3});
          table.add(of);
        }
        std::vector<std::uint32_t> const reference = ad::uniform_choice(table, 2);
        double const budget = ad::budget_of(table, reference);
        ad::lgreco const solve{.how = how, .steps = steps, .most_states = 4096};
        ad::selection const s = solve(table, budget, reference);
        ASSERT_LE(s.cost, table.cost(reference));
        ASSERT_TRUE(table.within(s.choices, budget));
        ASSERT_LE(s.lower_bound, s.cost);
      }
}

TEST(Lgreco, without_room_to_search_says_how_far_the_optimum_may_be) {
  int unproved = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    ad::choice_table const table = problem(seed, 7, 0);
    double const budget = budget_for(table, seed), least = least_cost(table, budget);
    for (method how : {method::search, method::grid}) {
      ad::selection const s = ad::lgreco{.how = how, .steps = 20, .most_states = 16}(table, budget);
      EXPECT_TRUE(table.within(s.choices, budget));
      EXPECT_LE(s.lower_bound, least);
      EXPECT_GE(s.cost, least);
      if (s.optimal) {
        EXPECT_EQ(s.cost, least);
      }
      unproved += !s.optimal;
    }
  }
  EXPECT_GT(unproved, 60);
}

TEST(Lgreco, a_tolerance_is_kept) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    ad::choice_table const table = problem(seed, 6, static_cast<int>(seed % 2));
    double const budget = budget_for(table, seed), least = least_cost(table, budget);
    ad::selection const s = ad::lgreco{.tolerance = 0.05}(table, budget);
    EXPECT_TRUE(s.optimal);
    EXPECT_LE(s.cost * 0.95, least);
    EXPECT_LE(s.lower_bound, least);
  }
}

/// Errors that rounding up to 2^-60 of the budget would put beyond it.
TEST(Lgreco, proves_an_optimum_that_fills_the_budget_to_the_last_bit) {
  ad::choice_table table;
  table.add({{1, 1 - 0x1p-50}, {100, 0}});
  table.add({{1, 0x1p-50 - 0x1p-70}, {100, 0}});
  table.add({{1, 0x1p-70}, {100, 0}});
  std::vector<std::uint32_t> const cheapest(3, 0);
  ASSERT_TRUE(table.within(cheapest, 1));
  // the same where it is not a uniform choice
  ad::choice_table mixed;
  mixed.add({{1, 1 - 0x1p-50}, {100, 0}});
  mixed.add({{100, 0}, {1, 0x1p-50 - 0x1p-70}});
  mixed.add({{1, 0x1p-70}, {100, 0}});
  for (ad::choice_table const* t : {&table, &mixed}) {
    ad::selection const s = ad::lgreco{}(*t, 1);
    EXPECT_EQ(s.cost, 3);
    EXPECT_TRUE(s.optimal);
    EXPECT_LE(s.lower_bound, 3);
    EXPECT_LE((ad::lgreco{.how = method::grid}(*t, 1).lower_bound), 3);
  }
}

/// Errors around 2^-60 of the budget, which rounding down lets pass where they do not, and rounding up the other way round.
TEST(Lgreco, what_it_proves_is_true_where_errors_are_finer_than_its_units) {
  int proved = 0, not_proved = 0, below_the_units = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 draw(seed);
    ad::choice_table table;
    std::size_t const layers = 2 + seed % 5;
    table.add({{1, 1 - 0x1p-50}, {50, 0.5}, {1000, 0}});
    for (std::size_t l = 1; l < layers; ++l) {
      std::vector<ad::candidate> of;
      for (int c = 0; c < 4; ++c)
        of.push_back({static_cast<double>(1 + draw() % 60),
                      std::ldexp(draw() % 4096, -64 + static_cast<int>(draw() % 3))});
      of.push_back({1000, 0});
      table.add(of);
    }
    double const least = least_cost(table, 1);
    ad::selection const s = ad::lgreco{}(table, 1);
    ASSERT_TRUE(table.within(s.choices, 1)) << seed;
    ASSERT_LE(s.lower_bound, least) << seed;
    if (s.optimal) {
      ASSERT_EQ(s.cost, least) << seed;
    }
    ASSERT_LE((ad::lgreco{.how = method::grid}(table, 1).lower_bound), least) << seed;
    (s.optimal ? proved : not_proved) += 1;
    below_the_units += s.cost > s.lower_bound * (1 + 1e-9);
  }
  EXPECT_GT(proved, 200);
  EXPECT_EQ(not_proved, below_the_units);
}

/// At the price 1 / 49 an error of 49 * 2^k is cheaper by a rounding than what it saves, 2^k, so that all layers favor it:
/// together more than 2^63 units of 2^-60 of the budget, which has room for one layer.
TEST(Lgreco, many_layers_of_the_same_price_do_not_overflow) {
  for (int layers = 9; layers < 80; ++layers) {
    ad::choice_table table;
    for (int l = 0; l < layers; ++l) table.add({{16, 0}, {0, 49.0 * 16 / 1024}});
    ad::selection const s = ad::lgreco{}(table, 1);
    EXPECT_EQ(s.cost, 16 * (layers - 1)) << layers;
    EXPECT_TRUE(s.optimal) << layers;
  }
}

/// All sums of costs and errors lie on one line, so that no bound is better than another.
TEST(Frontier, a_cut_among_equal_bounds_keeps_as_many_as_there_is_room_for) {
  int fuller = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 draw(seed);
    ad::choice_table table;
    double most = 0;
    for (int l = 0; l < 30; ++l) {
      double const saved = 1 + draw() % 100000;
      table.add({{200000, 0}, {200000 - saved, saved}});
      most += 200000;
    }
    ad::detail::frontier search(table, 262144, most, 0, ad::detail::unit_rounding::down);
    ad::detail::frontier_result const r = search.solve(480);  // 16 at a time
    ASSERT_FALSE(r.choices.empty());
    EXPECT_LE(r.lower_bound, most - 262144);
    // what the greedy first guess leaves of the budget is of the size of a layer; sixteen sums at each of thirty layers fill it
    fuller += table.cost(r.choices) < most - 262144 * 0.99;
  }
  EXPECT_EQ(fuller, 20);
}

TEST(Lgreco, without_any_error_allowed_takes_the_cheapest_lossless_candidates) {
  ad::choice_table table;
  table.add({{1, 1e-300}, {7, 0}, {5, 0}});
  table.add({{4, 0}});
  for (method how : {method::search, method::grid}) {
    ad::selection const s = ad::lgreco{.how = how}(table, 0);
    EXPECT_EQ(s.cost, 9);
    EXPECT_EQ(s.error, 0);
    EXPECT_EQ(s.choices[0], 2U);
  }
}

TEST(Lgreco, a_layer_with_errors_1e30_times_larger_leaves_the_others_their_choice) {
  // Rounded up to the grid each small error takes a step; the exact method need not pay for it.
  ad::choice_table table;
  for (int l = 0; l < 50; ++l) table.add({{1, 1e-15}, {2, 1e-16}});
  table.add({{10, 1e15}, {20, 1e14}});
  std::vector<std::uint32_t> const reference(51, 1);
  double const budget = ad::budget_of(table, reference);
  ad::selection const grid = ad::lgreco{.how = method::grid}(table, budget, reference);
  ad::selection const exact = ad::lgreco{}(table, budget, reference);
  EXPECT_LE(grid.cost, table.cost(reference));
  EXPECT_LE(exact.cost, grid.cost);
  EXPECT_TRUE(table.within(exact.choices, budget));
  EXPECT_TRUE(table.within(grid.choices, budget));
  // with a little room all of them take the smaller one
  ad::selection const roomy = ad::lgreco{}(table, budget * 1.001, reference);
  EXPECT_EQ(roomy.cost, 50 + 20);
}

TEST(Lgreco, an_empty_table_has_an_empty_choice) {
  ad::selection const s = ad::lgreco{}({}, 1);
  EXPECT_TRUE(s.choices.empty());
  EXPECT_EQ(s.cost, 0);
}

TEST(Lgreco, what_cannot_be_is_told_with_numbers) {
  ad::choice_table table;
  table.add({{1, 5}, {2, 3}}, "conv");
  table.add({{1, 2}, {2, 1}}, "fc");
  auto const refusal = [&](double budget, ad::lgreco const& solve) -> std::string {
    try {
      static_cast<void>(solve(table, budget));
    } catch (globalq::configuration_error const& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(
      refusal(3.5, {}),
      HasSubstr("no choice meets the error budget 3.5, the smallest error is 4, of which 3 comes from "
                "conv; raise alpha, or add candidates of smaller error, for example with more bits, values "
                "or ranks"));
  EXPECT_THAT(refusal(std::nextafter(4.0, 0.0), {}), HasSubstr("no choice meets"));
  EXPECT_EQ(refusal(4, {}), "");
  EXPECT_THAT(refusal(-1, {}), HasSubstr("the budget -1"));
  EXPECT_THAT(refusal(std::numeric_limits<double>::quiet_NaN(), {}), HasSubstr("the budget nan"));
  EXPECT_THAT(refusal(4, {.steps = 0}), HasSubstr("0 steps"));
  EXPECT_THAT(refusal(4, {.tolerance = 1}), HasSubstr("tolerance 1"));
}

}  // namespace
