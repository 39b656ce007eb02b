// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Accordion's switch, alone and as the reference of L-GreCo.

#include <globalq/train/adapt/accordion.hpp>
#include <globalq/train/adapt/lgreco.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace ad = globalq::adapt;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<double> v(std::initializer_list<double> norms) { return norms; }

TEST(Accordion, is_critical_from_a_change_of_eta_on) {
  ad::accordion a(4, 0.5);
  EXPECT_THAT(a.critical(), ElementsAre(true, true, true, true));
  EXPECT_THAT(a.update(v({8, 8, 8, 8})), ElementsAre(true, true, true, true));  // nothing to compare with yet
  EXPECT_THAT(a.update(v({8, 4, 12, 11.9})), ElementsAre(false, true, true, false));
  // relative to the former norm: 4 -> 8 doubles, 12 -> 8 is a third
  EXPECT_THAT(a.update(v({4.1, 8, 8, 11.9})), ElementsAre(false, true, false, false));
}

TEST(Accordion, a_falling_learning_rate_makes_every_layer_critical) {
  ad::accordion a(2);
  a.update(v({1, 1}), 0.1, 0.1);
  EXPECT_THAT(a.update(v({1, 1}), 0.1, 0.1), ElementsAre(false, false));
  EXPECT_THAT(a.update(v({1, 1}), 0.1, 0.01), ElementsAre(true, true));
  EXPECT_THAT(a.update(v({1, 1}), 0.01, 0.02), ElementsAre(false, false));
}

TEST(Accordion, zero_norms_settle_and_wake_up) {
  ad::accordion a(1);
  a.update(v({0}));
  EXPECT_THAT(a.update(v({0})), ElementsAre(false));
  EXPECT_THAT(a.update(v({1e-300})), ElementsAre(true));
  EXPECT_THAT(a.update(v({1e-300})), ElementsAre(false));
  EXPECT_THAT(a.update(v({0})), ElementsAre(true));
}

TEST(Accordion, a_norm_that_is_no_number_is_critical_and_forgotten) {
  ad::accordion a(2);
  a.update(v({1, 1}));
  double const nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(a.update(v({nan, inf})), ElementsAre(true, true));
  EXPECT_THAT(a.update(v({1.1, 3})), ElementsAre(false, true));
}

TEST(Accordion, refuses_other_layers_and_settings) {
  ad::accordion a(2);
  EXPECT_THROW(a.update(v({1})), globalq::configuration_error);
  EXPECT_THROW(a.update(v({1, -1})), globalq::configuration_error);
  EXPECT_THROW(ad::accordion(2, 0), globalq::configuration_error);
  EXPECT_THROW(ad::accordion(2, std::numeric_limits<double>::quiet_NaN()), globalq::configuration_error);
  std::vector<std::uint32_t> const two{0, 0}, one{0};
  EXPECT_THROW(static_cast<void>(a.choices(two, one)), globalq::configuration_error);
}

TEST(Accordion, sets_the_budget_of_lgreco_layer_by_layer) {
  // Three layers, candidates of 1 to 4 units with errors 4^-k; less compression is 3, more is 1.
  ad::choice_table table;
  for (double norm : {1.0, 10.0, 100.0})
    table.add({{1, norm}, {2, norm / 4}, {3, norm / 16}, {4, norm / 64}});
  ad::accordion a(3);
  auto const less = ad::uniform_choice(table, 2), more = ad::uniform_choice(table, 0);
  a.update(v({1, 10, 100}));
  double const early = ad::budget_of(table, a.choices(less, more));
  EXPECT_EQ(early, ad::budget_of(table, less));
  a.update(v({1, 10, 200}));  // the last layer goes on changing
  auto const reference = a.choices(less, more);
  EXPECT_THAT(reference, ElementsAre(0U, 0U, 2U));
  double const later = ad::budget_of(table, reference);
  EXPECT_EQ(later, 1 + 10 + 100 / 16.0);
  EXPECT_GT(later, early);
  ad::selection const alone = ad::lgreco{}(table, early, less), both = ad::lgreco{}(table, later, reference);
  EXPECT_LE(both.cost, table.cost(reference));
  EXPECT_LT(both.cost, alone.cost);
  EXPECT_TRUE(table.within(both.choices, later));
}

/// Two layers with three candidates each: 1, 2 or 4 bytes at the errors 16, 4 and 1.
ad::choice_table small_table() {
  ad::choice_table table;
  for (int l = 0; l < 2; ++l) table.add({{1, 16}, {2, 4}, {4, 1}});
  return table;
}
std::vector<ad::layer_point> norms_of(double a, double b) { return {{10, a}, {10, b}}; }

TEST(AccordionRule, alone_gives_one_of_two_candidates) {
  ad::rule rule = ad::accordion_rule({.less = 2, .more = 0});
  ad::choice_table const table = small_table();
  EXPECT_THAT(rule(table, norms_of(1, 1), 0, {}).choices, ElementsAre(2, 2));
  ad::rule copy = rule;  // with what it knows so far
  EXPECT_THAT(rule(table, norms_of(1, 2), 0, {}).choices, ElementsAre(0, 2));
  ad::selection const settled = rule(table, norms_of(1, 2), 0, {});
  EXPECT_THAT(settled.choices, ElementsAre(0, 0));
  EXPECT_EQ(settled.cost, 2);
  EXPECT_EQ(settled.error, 32);
  EXPECT_FALSE(settled.optimal);
  EXPECT_THAT(copy(table, norms_of(2, 1), 0, {}).choices, ElementsAre(2, 0));
}

TEST(AccordionRule, sets_the_budget_of_another_rule) {
  ad::rule rule =
      ad::accordion_rule({.less = 2, .more = 0, .within = ad::rule_of(ad::lgreco{}), .alpha = 1.25});
  ad::choice_table const table = small_table();
  rule(table, norms_of(1, 1), 0, {});
  // Accordion's own choice costs 5 at an error of 17; 1.25 times that, 21.25, is enough for 16 + 4 at 3
  ad::selection const found = rule(table, norms_of(1, 2), 0, {});
  EXPECT_EQ(found.cost, 3);
  EXPECT_EQ(found.error, 20);
}

TEST(AccordionRule, a_learning_rate_that_falls_makes_every_layer_critical) {
  std::pair<double, double> rates{0.1, 0.1};
  ad::rule rule = ad::accordion_rule({.less = 2, .more = 0, .rates = [&] { return rates; }});
  ad::choice_table const table = small_table();
  rule(table, norms_of(1, 1), 0, {});
  EXPECT_THAT(rule(table, norms_of(1, 1), 0, {}).choices, ElementsAre(0, 0));
  rates = {0.1, 0.01};
  EXPECT_THAT(rule(table, norms_of(1, 1), 0, {}).choices, ElementsAre(2, 2));
}

TEST(AccordionRule, refuses_candidates_that_layers_do_not_have) {
  ad::rule rule = ad::accordion_rule({.less = 3, .more = 0});
  EXPECT_THROW(rule(small_table(), norms_of(1, 1), 0, {}), globalq::configuration_error);
}

}  // namespace
