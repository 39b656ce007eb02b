// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tables of choices: exact sums, references and budgets, and what is refused.

#include "tests/support/refusal.hpp"

#include <globalq/train/adapt/choices.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ad = globalq::adapt;
using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

__extension__ typedef unsigned __int128 big;

TEST(ExactSum, agrees_with_integers_wherever_they_lie) {
  // sums of m 2^e with m below 2^53 and e in a window of 64 fit into 128 bits
  std::mt19937_64 draw(1);
  for (int base : {-1074, -1040, -600, -64, 0, 500, 900}) {
    ad::detail::exact_sum sum;
    big expected = 0;
    for (int k = 0; k < 200; ++k) {
      std::uint64_t const m = draw() >> (11 + draw() % 53);
      int const e = static_cast<int>(draw() % 60);
      sum.add(std::ldexp(static_cast<double>(m), base + e));
      expected += static_cast<big>(m) << e;
    }
    int excess = 0;  // the smallest double that is not below: 53 bits, rounded up
    big top = expected;
    while ((top >> 53) != 0) top >>= 1, ++excess;
    if ((top << excess) != expected) ++top;
    EXPECT_EQ(sum.rounded_up(),
              std::ldexp(static_cast<double>(static_cast<std::uint64_t>(top)), base + excess))
        << base;
  }
}

TEST(ExactSum, loses_nothing_beside_a_large_number) {
  double const tiny = std::numeric_limits<double>::denorm_min();
  ad::detail::exact_sum a(1e300), b(1e300);
  EXPECT_TRUE(a == b);
  b.add(tiny);
  EXPECT_TRUE(a < b);
  EXPECT_EQ(a.rounded_up(), 1e300);
  EXPECT_EQ(b.rounded_up(), std::nextafter(1e300, 2e300));
  a.add(tiny);
  EXPECT_TRUE(a == b);
  EXPECT_EQ(ad::detail::exact_sum().rounded_up(), 0.0);
  EXPECT_EQ(ad::detail::exact_sum(tiny).rounded_up(), tiny);
  EXPECT_EQ(ad::detail::exact_sum(3 * tiny).rounded_up(), 3 * tiny);
}

TEST(ExactSum, carries_over_words) {
  double const most = std::numeric_limits<double>::max();
  ad::detail::exact_sum sum;
  for (int k = 0; k < 1000; ++k) sum.add(most);
  EXPECT_TRUE(std::isinf(sum.rounded_up()));
  ad::detail::exact_sum a, b;
  for (int e = 0; e < 130; ++e) a.add(std::ldexp(1.0, e));  // 2^130 - 1
  a.add(1);
  b.add(std::ldexp(1.0, 130));
  EXPECT_TRUE(a == b);
}

TEST(ChoiceTable, keeps_ragged_layers_in_order) {
  ad::choice_table table;
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.add({{8, 1}, {16, 0.25}, {32, 0}}, "fc"), 0U);
  EXPECT_EQ(table.add({{40, 0}}), 1U);
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table[0].size(), 3U);
  EXPECT_EQ(table[1][0].cost, 40);
  EXPECT_EQ(table.name(0), "fc");
  EXPECT_EQ(table.name(1), "layer 1");
  std::vector<std::uint32_t> const c{1, 0};
  EXPECT_EQ(table.cost(c), 56);
  EXPECT_EQ(table.error(c), 0.25);
  EXPECT_TRUE(table.within(c, 0.25));
  EXPECT_FALSE(table.within(c, std::nextafter(0.25, 0.0)));
}

TEST(ChoiceTable, within_is_exact_where_a_sum_of_doubles_is_not) {
  ad::choice_table table;
  for (int l = 0; l < 11; ++l) table.add({{1, l == 0 ? 1 : 0x1p-54}});
  std::vector<std::uint32_t> const c(11, 0);
  double naive = 0;
  for (std::size_t l = 0; l < 11; ++l) naive += table[l][0].error;
  EXPECT_EQ(naive, 1.0);
  EXPECT_FALSE(table.within(c, naive));
  EXPECT_EQ(table.error(c), 1 + 3 * 0x1p-52);  // 10 / 4 units in the last place, rounded up
  EXPECT_TRUE(table.within(c, table.error(c)));
}

TEST(ChoiceTable, refuses_what_no_solver_could_use) {
  ad::choice_table table;
  double const nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal([&] { table.add({}, "fc"); }), HasSubstr("fc has 0 candidates"));
  std::vector<ad::candidate> const many(257);
  EXPECT_THAT(refusal([&] { table.add(many); }), HasSubstr("layer 0 has 257 candidates; give 1 to 256"));
  EXPECT_THAT(refusal([&] {
                table.add({{1, 1}, {1, nan}}, "fc");
              }),
              HasSubstr("candidate 1 of fc has the error nan"));
  EXPECT_THAT(refusal([&] { table.add({{-1, 0}}); }), HasSubstr("candidate 0 of layer 0 has the cost -1"));
  EXPECT_THAT(refusal([&] { table.add({{inf, 0}}); }), HasSubstr("the cost inf"));
  EXPECT_THAT(refusal([&] { table.add({{1e300, 0}}); }), HasSubstr("the cost 1e+300"));
  EXPECT_EQ(table.size(), 0U);
  table.add({{1, 0}, {2, 0}}, "fc");
  std::vector<std::uint32_t> const none, high{2};
  EXPECT_THAT(refusal([&] { static_cast<void>(table.cost(none)); }), HasSubstr("0 choices for 1 layers"));
  EXPECT_THAT(refusal([&] { static_cast<void>(table.error(high)); }),
              HasSubstr("choice 2 for fc, which has 2"));
}

TEST(ChoiceTable, uniform_references_pass_over_layers_without_a_choice) {
  ad::choice_table table;
  table.add({{4, 4}, {8, 1}});
  table.add({{100, 0}});
  EXPECT_THAT(ad::uniform_choice(table, 1), ElementsAre(1U, 0U));
  EXPECT_THAT(refusal([&] { static_cast<void>(ad::uniform_choice(table, 2)); }),
              HasSubstr("layer 0 has 2 candidates, index 2 does not exist"));
  EXPECT_EQ(ad::budget_of(table, ad::uniform_choice(table, 0)), 4);
  EXPECT_EQ(ad::budget_of(table, ad::uniform_choice(table, 0), 1.5), 6);
  EXPECT_THAT(refusal([&] { static_cast<void>(ad::budget_of(table, ad::uniform_choice(table, 0), -1)); }),
              HasSubstr("alpha -1"));
}

TEST(Around, spans_half_to_twice_the_reference) {
  EXPECT_THAT(ad::around(4), ElementsAre(2U, 3U, 4U, 5U, 6U, 7U, 8U));
  EXPECT_THAT(ad::around(1), ElementsAre(1U, 2U));
  EXPECT_THAT(ad::around(3), ElementsAre(2U, 3U, 4U, 5U, 6U));
  std::vector<double> const densities = ad::around(0.01, 5);
  ASSERT_EQ(densities.size(), 5U);
  EXPECT_EQ(densities[0], 0.005);
  EXPECT_EQ(densities[2], 0.01);
  EXPECT_EQ(densities[4], 0.02);
  EXPECT_DOUBLE_EQ(densities[1] / densities[0], std::sqrt(2.0));
  EXPECT_THAT(ad::around(3, 3.0), ElementsAre(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U));
  EXPECT_THAT(ad::around(5, 1.0), ElementsAre(5U));
  EXPECT_THAT(ad::around(~0U, 1.0), ElementsAre(~0U));
  std::vector<double> const wide = ad::around(0.01, 5, 10);
  for (std::size_t k = 0; k < 5; ++k)
    EXPECT_NEAR(wide[k] / 0.01, std::pow(10, (static_cast<double>(k) - 2) / 2), 1e-14);
  EXPECT_EQ(wide[2], 0.01);
  for (double const factor : {0.5, -1.0, std::nan(""), 0x1p21})
    EXPECT_THAT(refusal([&] { static_cast<void>(ad::around(0.01, 5, factor)); }),
                HasSubstr("is not between 1 and 2^20"));
  EXPECT_THAT(refusal([&] { static_cast<void>(ad::around(0.01, 4)); }), HasSubstr("an odd number"));
}

}  // namespace
