// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Exponential levels: the suite for base 2 with headroom and for other bases, their limits and
/// refusals.

#include "globalq/levels/exponential.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/levels/suite.hpp"

namespace globalq_test {

using ::testing::HasSubstr;
using binary_levels = gq::levels::exponential<>;
using other_base = gq::levels::exponential<gq::dynamic, double>;

/// Level k > 0 of s is extent * 2^-(s-k), and its code is s - k + 1 plus the headroom.
template <class Exponential>
scheme_case<Exponential> binary_case(Exponential scheme) {
  int const s = static_cast<int>(scheme.size()), h = static_cast<int>(scheme.headroom());
  long double const extent = scheme.extent();
  return {"exponential " + std::to_string(s) + " headroom " + std::to_string(h), scheme,
          static_cast<std::uint64_t>(s) + 1,
          [=](std::uint64_t k) { return k == 0 ? 0.0L : std::ldexp(extent, static_cast<int>(k) - s); },
          [=](std::uint64_t k) { return k == 0 ? 0 : s - static_cast<int>(k) + 1 + h; }};
}

struct binary_cases {
  using scheme = binary_levels;
  static constexpr long double slack = 0;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<scheme_case<scheme>> list;
    for (std::uint32_t s : {1U, 2U, 3U, 7U, 15U, 63U, 94U, 95U, 96U, 97U, 126U, 127U})
      for (std::uint32_t h : {0U, 1U, 2U, 6U, 31U, 63U, 94U, 95U, 126U, 127U}) {
        scheme const with = scheme(s).with_headroom(h);
        if (h <= with.headroom_limit()) list.push_back(binary_case(with));
      }
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(exponential, level_scheme_suite, binary_cases);

struct static_binary_cases {
  using scheme = gq::levels::exponential<7>;
  static constexpr long double slack = 0;
  static std::vector<scheme_case<scheme>> all() { return {binary_case(scheme{}.with_headroom(3))}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(exponential_7, level_scheme_suite, static_binary_cases);

/// Levels are floats: the table's own values; how near they are to b^-(k-1) is a test below.
struct other_base_cases {
  using scheme = other_base;
  static constexpr long double slack = 0x1p-50L;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<scheme_case<scheme>> list;
    struct {
      std::uint32_t s;
      double base;
    } const of[] = {{1, 1.5}, {2, 3},  {7, 1.5},   {7, 3},      {7, 10},
                    {29, 10}, {60, 3}, {127, 1.5}, {127, 1.01}, {94, 2}};
    for (auto const& o : of) {
      scheme const t(o.s, o.base);
      int const s = static_cast<int>(o.s);
      list.push_back(
          {"base " + std::to_string(o.base) + ", " + std::to_string(o.s), t, std::uint64_t{o.s} + 1,
           [t, s](std::uint64_t k) {
             return k == 0 ? 0.0L
                           : static_cast<long double>(
                                 t.value(static_cast<std::uint32_t>(s + 1) - static_cast<std::uint32_t>(k)));
           },
           [s](std::uint64_t k) { return k == 0 ? 0 : s + 1 - static_cast<int>(k); }});
    }
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(exponential_other_bases, level_scheme_suite, other_base_cases);

namespace {

TEST(ExponentialLevels, base_2_is_another_type_than_the_bases_given_as_a_number) {
  static_assert(std::is_same_v<decltype(gq::levels::exponential{7}), binary_levels>);
  static_assert(std::is_same_v<decltype(gq::levels::exponential{7, 1.5}), other_base>);
  static_assert(binary_levels::base_two);
  static_assert(binary_levels{}.size() == 0 && binary_levels{}.resized(5).size() == 5);
}

TEST(ExponentialLevels, resized_keeps_the_headroom_and_headroom_keeps_the_size) {
  static_assert(binary_levels{}.with_headroom(3).resized(5).max_code() == 8);
  static_assert(binary_levels{}.resized(5).with_headroom(3).max_code() == 8);
}

TEST(ExponentialLevels, all_sizes_and_headrooms_that_int8_can_hold_have_normal_values) {
  for (std::uint32_t s = 1; s <= 127; ++s)
    for (std::uint32_t h = 0; s + h <= 127; ++h) {
      binary_levels const e = binary_levels(s).with_headroom(h);
      ASSERT_LE(h, e.headroom_limit()) << s;
      for (std::uint32_t code = 1; code <= e.max_code(); ++code) {
        float const v = e.value(code);
        ASSERT_GE(v, 0x1p-126F) << s << ' ' << h << ' ' << code;
        ASSERT_LE(v, 0x1p127F) << s << ' ' << h << ' ' << code;
        // a code is one more than the exponent below the extent, plus the headroom
        ASSERT_EQ(v, std::ldexp(e.extent(), static_cast<int>(h) + 1 - static_cast<int>(code)));
      }
    }
}

TEST(ExponentialLevels, codes_within_the_headroom_decode_to_more_than_the_norm) {
  binary_levels const e = binary_levels(7).with_headroom(3);
  EXPECT_EQ(e.value(4), e.extent());
  EXPECT_EQ(e.value(3), 2 * e.extent());
  EXPECT_EQ(e.value(1), 8 * e.extent());
}

// The double powers carry at most s roundings of 2^-53 each, the float one of 2^-24.
TEST(ExponentialLevels, other_bases_have_powers_of_the_base) {
  for (double base : {1.5, 3.0, 10.0}) {
    std::uint32_t const s = base < 2 ? 127 : (base < 4 ? 60 : 29);
    other_base const t(s, base);
    for (std::uint32_t code = 1; code <= s; ++code) {
      long double const exact = std::pow(static_cast<long double>(base), 1 - static_cast<int>(code));
      EXPECT_LE(std::abs(t.value(code) - exact), exact * (0x1p-24L + 128 * 0x1p-53L)) << base << ' ' << code;
    }
    EXPECT_EQ(t.value(1), 1.0F);
    EXPECT_EQ(t.value(0), 0.0F);
  }
}

TEST(ExponentialLevels, base_2_as_a_number_gives_the_same_levels_and_codes) {
  other_base const t(15, 2.0);
  binary_levels const e(15);
  for (float x : {0.0F, 0x1p-15F, 0.001F, 0.3F, 0.5F, 0.75F, 0.9999F, 1.0F}) {
    EXPECT_EQ(t.locate(x).lower, e.locate(x).lower) << x;
    EXPECT_EQ(t.locate(x).threshold, e.locate(x).threshold) << x;
  }
}

TEST(ExponentialLevels, bases_not_above_1_are_refused) {
  for (double base : {1.0, 0.5, 0.0, -2.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refusal([&] { other_base(7, base); }),
                HasSubstr("is not above 1; use 2 (fast) or another base above 1"))
        << base;
  EXPECT_FALSE(refusal([] { other_base(7, std::numeric_limits<double>::infinity()); }).empty());
}

TEST(ExponentialLevels, numbers_of_levels_outside_1_to_127_are_refused_with_the_number) {
  EXPECT_THAT(refusal([] { other_base(0, 1.5); }), HasSubstr("0 levels; use 1 to 127"));
  EXPECT_THAT(refusal([] { other_base(128, 1.5); }), HasSubstr("128 levels; use 1 to 127"));
}

TEST(ExponentialLevels, levels_below_float32_are_refused_and_the_remedies_work) {
  std::string const text = refusal([] { other_base(30, 10.0); });
  EXPECT_THAT(text, HasSubstr("base 10.0"));
  EXPECT_THAT(text, HasSubstr("30 levels has levels below 2^-94; use fewer levels or a smaller base"));
  EXPECT_EQ(refusal([] { other_base(29, 10.0); }), "");
  EXPECT_EQ(refusal([] { other_base(30, 9.0); }), "");
}

}  // namespace
}  // namespace globalq_test
