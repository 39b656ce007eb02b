// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every level scheme keeps to. A new scheme joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, level_scheme_suite, cases);`
///
/// `cases` has:
/// - `scheme`, the type under test;
/// - `all()`, the schemes to test with, each with its levels (a scheme_case);
/// - `slack`, how far threshold / 2^32 may lie from the exact fraction beyond the 2^-32 of cutting it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "globalq/core/concepts.hpp"
#include "globalq/core/error.hpp"
#include "tests/support/refusal.hpp"

namespace globalq_test {

namespace gq = globalq;
using support::refusal;

/// A scheme and what is known of it: its levels in ascending order, on the scale of extent().
template <class Scheme>
struct scheme_case {
  std::string name;
  Scheme scheme;
  std::uint64_t count = 0;  ///< levels, zero (or minus the first) included
  std::function<long double(std::uint64_t)> level;
  std::function<std::int32_t(std::uint64_t)> code;

  /// All indices of levels below the last one, or a sample with both ends.
  std::vector<std::uint64_t> gaps() const {
    std::vector<std::uint64_t> list;
    std::uint64_t const last = count - 1;
    for (std::uint64_t k = 0; k < last; k += last <= 600 ? 1 : (k < 40 || k + 40 >= last ? 1 : last / 97))
      list.push_back(k);
    for (std::uint64_t k = last > 640 ? last - 40 : last; k < last; ++k) list.push_back(k);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  /// Floats of the gap above level k: its ends, their neighbors and a spread between them; none negative.
  std::vector<float> inside(std::uint64_t k) const {
    float const a = std::max(0.0F, static_cast<float>(level(k))), c = static_cast<float>(level(k + 1));
    std::vector<float> list{a, std::nextafter(a, c), std::nextafter(c, a), (a + c) / 2,
                            std::nextafter((a + c) / 2, a)};
    for (float part : {0x1p-20F, 0.001F, 0.1F, 1.0F / 3, 0.7F, 0.9999F}) list.push_back(a + (c - a) * part);
    if (a == 0)
      for (float t :
           {0x1p-149F, 0x1p-140F, 0x1.fffffcp-127F, 0x1p-126F, c * 0x1p-33F, c * 0x1p-32F, c * 0x1.8p-31F})
        list.push_back(t);
    std::erase_if(list, [&](float t) { return t < a || t >= c; });
    std::sort(list.begin(), list.end());
    return list;
  }

  /// The level of a code, with the code's sign.
  long double value(std::int32_t of) const {
    long double const v = scheme.value(static_cast<std::uint32_t>(std::abs(of)));
    return of < 0 ? -v : v;
  }
};

template <class Cases>
class level_scheme_suite : public ::testing::Test {};

TYPED_TEST_SUITE_P(level_scheme_suite);

TYPED_TEST_P(level_scheme_suite, is_a_level_scheme) {
  static_assert(gq::LevelScheme<typename TypeParam::scheme>);
}

TYPED_TEST_P(level_scheme_suite, the_value_of_a_code_is_its_level) {
  for (auto const& c : TypeParam::all()) {
    for (std::uint64_t k : c.gaps()) ASSERT_EQ(c.value(c.code(k)), c.level(k)) << c.name << ": level " << k;
    ASSERT_EQ(c.value(c.code(c.count - 1)), c.level(c.count - 1)) << c.name;
  }
}

TYPED_TEST_P(level_scheme_suite, a_value_as_large_as_the_norm_gets_the_last_level_whatever_the_word) {
  for (auto const& c : TypeParam::all()) {
    ASSERT_EQ(static_cast<long double>(c.scheme.extent()), c.level(c.count - 1)) << c.name;
    gq::neighbors const n = c.scheme.locate(c.scheme.extent());
    ASSERT_EQ(n.lower, c.code(c.count - 1)) << c.name;
    ASSERT_EQ(n.threshold, 0U) << c.name;
  }
}

TYPED_TEST_P(level_scheme_suite, max_code_is_the_largest_code_that_locate_gives) {
  for (auto const& c : TypeParam::all()) {
    std::uint32_t largest = 0;
    for (std::uint64_t k : c.gaps())
      for (float t : c.inside(k)) {
        gq::neighbors const n = c.scheme.locate(t);
        largest = std::max({largest, static_cast<std::uint32_t>(std::abs(n.lower)),
                            static_cast<std::uint32_t>(std::abs(n.upper))});
      }
    ASSERT_EQ(largest, c.scheme.max_code()) << c.name;
  }
}

TYPED_TEST_P(level_scheme_suite, a_level_is_located_as_itself_with_threshold_0) {
  for (auto const& c : TypeParam::all())
    for (std::uint64_t k : c.gaps()) {
      if (c.level(k) < 0) continue;
      gq::neighbors const n = c.scheme.locate(static_cast<float>(c.level(k)));
      ASSERT_EQ(n.lower, c.code(k)) << c.name << ": level " << k;
      ASSERT_EQ(n.threshold, 0U) << c.name << ": level " << k;
    }
}

// The threshold is the fraction cut to 32 bits: 0 <= fraction - threshold / 2^32 < 2^-32, and slack on both
// sides. t, levels and their differences have at most 53 bits here, so the fraction in long double is right
// to 2^-63.
TYPED_TEST_P(level_scheme_suite, between_two_levels_the_threshold_is_the_fraction_cut_to_32_bits) {
  constexpr long double slack = TypeParam::slack + 0x1p-63L;
  for (auto const& c : TypeParam::all())
    for (std::uint64_t k : c.gaps())
      for (float t : c.inside(k)) {
        gq::neighbors const n = c.scheme.locate(t);
        ASSERT_EQ(n.lower, c.code(k)) << c.name << ": t " << t;
        ASSERT_EQ(n.upper, c.code(k + 1)) << c.name << ": t " << t;
        long double const fraction =
            (static_cast<long double>(t) - c.level(k)) / (c.level(k + 1) - c.level(k));
        long double const cut = fraction - static_cast<long double>(n.threshold) * 0x1p-32L;
        ASSERT_GE(cut, -slack) << c.name << ": t " << t;
        ASSERT_LE(cut, 0x1p-32L + slack) << c.name << ": t " << t;
      }
}

TYPED_TEST_P(level_scheme_suite, the_expected_level_rises_with_the_magnitude) {
  for (auto const& c : TypeParam::all()) {
    long double before = -1;
    for (std::uint64_t k : c.gaps())
      for (float t : c.inside(k)) {
        gq::neighbors const n = c.scheme.locate(t);
        long double const a = c.value(n.lower);
        long double const expected =
            a + (c.value(n.upper) - a) * (static_cast<long double>(n.threshold) * 0x1p-32L);
        ASSERT_GE(expected, before) << c.name << ": t " << t;
        before = expected;
      }
  }
}

TYPED_TEST_P(level_scheme_suite, zero_stays_zero_or_is_undecided_between_minus_and_plus_the_first_level) {
  for (auto const& c : TypeParam::all()) {
    gq::neighbors const n = c.scheme.locate(0.0F);
    ASSERT_EQ(n.lower, c.code(0)) << c.name;
    ASSERT_EQ(n.threshold, c.level(0) < 0 ? 0x80000000U : 0U) << c.name;
  }
}

REGISTER_TYPED_TEST_SUITE_P(level_scheme_suite, is_a_level_scheme, the_value_of_a_code_is_its_level,
                            a_value_as_large_as_the_norm_gets_the_last_level_whatever_the_word,
                            max_code_is_the_largest_code_that_locate_gives,
                            a_level_is_located_as_itself_with_threshold_0,
                            between_two_levels_the_threshold_is_the_fraction_cut_to_32_bits,
                            the_expected_level_rises_with_the_magnitude,
                            zero_stays_zero_or_is_undecided_between_minus_and_plus_the_first_level);

}  // namespace globalq_test
