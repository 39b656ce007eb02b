// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The sum of codes, the names of the reduces, and what the concept refuses.

#include "globalq/reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace {

namespace gq = globalq;
using gq::reduce::sum;

// No overflow can occur: whoever composes the operator checks n s <= 2^(A-1) - 1 first
// (tests/detail/resolve_test.cpp).
TEST(SumReduce, codes_are_added_as_integers_and_no_word_is_drawn) {
  static_assert(!sum::draws);
  for (int a = -63; a <= 63; ++a)
    for (int b = -63; b <= 63; ++b)
      for (std::uint32_t word : {0U, 0xffffffffU}) {
        ASSERT_EQ(sum::add(static_cast<std::int8_t>(a), static_cast<std::int8_t>(b), word), a + b);
        ASSERT_EQ(sum::add(static_cast<std::int16_t>(a * 250), static_cast<std::int16_t>(b * 250), word),
                  (a + b) * 250);
        ASSERT_EQ(sum::add(a * 10000000, b * 10000000, word), (a + b) * 10000000);
      }
}

TEST(SumReduce, the_ends_of_each_code_type_are_reached) {
  EXPECT_EQ(sum::add(std::int8_t{126}, std::int8_t{1}, 0U), 127);
  EXPECT_EQ(sum::add(std::int8_t{-126}, std::int8_t{-1}, 0U), -127);
  EXPECT_EQ(sum::add(std::int16_t{32766}, std::int16_t{1}, 0U), 32767);
  EXPECT_EQ(sum::add(std::int32_t{2147483646}, std::int32_t{1}, 0U), 2147483647);
}

TEST(Reduces, have_the_names_that_messages_use) {
  EXPECT_EQ(std::string(gq::reduce::automatic::name()), "auto");
  EXPECT_EQ(std::string(gq::reduce::sum::name()), "sum");
  EXPECT_EQ(std::string(gq::reduce::requantize::name()), "requantize");
}

struct with_state {
  static constexpr char const* name() { return "state"; }
  int state = 0;
};
struct nameless {};
static_assert(gq::ReduceOperator<sum> && gq::ReduceOperator<gq::reduce::automatic> &&
              gq::ReduceOperator<gq::reduce::requantize>);
static_assert(!gq::ReduceOperator<with_state>, "what a reduce does may depend on its arguments only");
static_assert(!gq::ReduceOperator<nameless> && !gq::ReduceOperator<int>);

}  // namespace
