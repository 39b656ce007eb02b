// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every reduce operator of one's own keeps to. A new one joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, reduce_operator_suite, cases);`
///
/// `cases` has `reduce`, the type under test, and `levels()`, a scheme that it can add.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "globalq/core/concepts.hpp"

namespace globalq_test {

template <class Cases>
struct reduce_operator_suite : ::testing::Test {
  using reduce = typename Cases::reduce;
  using levels = decltype(Cases::levels());
  static constexpr std::uint32_t last = 0xffffffffU;

  /// The largest code of a sum of @p terms terms, one added after the other.
  static std::int32_t largest(std::uint32_t terms) {
    return static_cast<std::int32_t>(
        reduce::largest_code(Cases::levels().max_code(), terms, terms == 0 ? 0 : terms - 1));
  }
  static double value(std::int32_t code) {
    double const v = static_cast<double>(Cases::levels().value(static_cast<std::uint32_t>(std::abs(code))));
    return code < 0 ? -v : v;
  }
  /// f(a, b) for all codes of sums of two terms.
  template <class F>
  static void each_pair(F const& f) {
    std::int32_t const most = largest(2);
    for (std::int32_t a = -most; a <= most; ++a)
      for (std::int32_t b = -most; b <= most; ++b) f(a, b);
  }
};

TYPED_TEST_SUITE_P(reduce_operator_suite);

TYPED_TEST_P(reduce_operator_suite, is_a_reduce_operator) {
  using suite = reduce_operator_suite<TypeParam>;
  static_assert(globalq::AddsCodes<typename TypeParam::reduce, typename suite::levels, std::int32_t>);
  static_assert(TypeParam::reduce::template adds<typename suite::levels>);
}

TYPED_TEST_P(reduce_operator_suite, one_term_needs_no_room) {
  using suite = reduce_operator_suite<TypeParam>;
  EXPECT_EQ(suite::largest(1), static_cast<std::int32_t>(TypeParam::levels().max_code()));
}

TYPED_TEST_P(reduce_operator_suite, no_sum_is_beyond_the_largest_code) {
  using suite = reduce_operator_suite<TypeParam>;
  using adder = typename TypeParam::reduce;
  std::mt19937 draw(1);
  for (std::uint32_t terms = 2; terms <= 9; ++terms)
    for (int k = 0; k < 2000; ++k) {
      std::int32_t const most = suite::largest(1);
      std::int32_t sum =
          k % 2 == 0 ? most : static_cast<std::int32_t>(draw() % static_cast<unsigned>(2 * most + 1)) - most;
      for (std::uint32_t t = 1; t < terms; ++t)
        sum = adder::add(sum, k % 2 == 0 ? most : -sum, k % 3 == 0 ? 0U : draw());
      EXPECT_LE(std::abs(sum), suite::largest(terms));
    }
}

/// Over all words: one comparison decides, so those that give one of the two codes are an interval, whose border is found by halving.
TYPED_TEST_P(reduce_operator_suite, the_expected_value_of_a_sum_is_the_sum) {
  using suite = reduce_operator_suite<TypeParam>;
  using adder = typename TypeParam::reduce;
  if (!adder::unbiased) GTEST_SKIP() << "it says that it is biased";
  suite::each_pair([](std::int32_t a, std::int32_t b) {
    auto const at = [&](std::uint64_t word) { return adder::add(a, b, static_cast<std::uint32_t>(word)); };
    std::int32_t const first = at(0), then = at(suite::last);
    std::uint64_t low = 0, high = suite::last;
    while (first != then && high - low > 1) {
      std::uint64_t const middle = (low + high) / 2;
      std::int32_t const code = at(middle);
      ASSERT_TRUE(code == first || code == then);
      (code == first ? low : high) = middle;
    }
    double const share = first == then ? 1.0 : static_cast<double>(high) * 0x1p-32;
    double const u = suite::value(first), v = suite::value(then), sum = suite::value(a) + suite::value(b);
    EXPECT_NEAR(u * share + v * (1 - share), sum, std::fabs(u - v) * 0x1p-31 + std::fabs(sum) * 0x1p-23)
        << a << " + " << b;
  });
}

REGISTER_TYPED_TEST_SUITE_P(reduce_operator_suite, is_a_reduce_operator, one_term_needs_no_room,
                            no_sum_is_beyond_the_largest_code, the_expected_value_of_a_sum_is_the_sum);

}  // namespace globalq_test
