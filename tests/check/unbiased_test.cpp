// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief check::unbiased and check::variance: unbiased operators pass, biased ones fail, with the stated power.

#include <globalq/check/unbiased.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/policies.hpp>
#include <globalq/schedule/any.hpp>

#include <gtest/gtest.h>

namespace unbiased_check_test {

namespace gq = globalq;
namespace check = gq::check;

/// Goes up too seldom: the probability is a share of parts / 2^16 too small.
struct reluctant {
  static constexpr char const* name = "reluctant";
  static constexpr bool unbiased = true;  // which it is not
  static constexpr bool word_per_coordinate = true;
  std::uint64_t parts = 0;
  std::uint64_t parameters() const { return parts; }
  GLOBALQ_FUNCTION std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  GLOBALQ_FUNCTION bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const {
    return word < threshold - static_cast<std::uint32_t>((threshold * parts) >> 16);
  }
  GLOBALQ_FUNCTION bool shifts() const { return false; }
  GLOBALQ_FUNCTION double shift(std::uint32_t) const { return 0; }
};

template <class Levels, class Rounding>
gq::any_quantizer of(Levels const& levels, Rounding const& rounding) {
  return gq::quantizer{gq::norm::linf{}, levels, rounding, gq::wire::int8{}};
}

gq::any_quantizer const uniform = of(gq::levels::uniform<>{7}, gq::rounding::stochastic{});

TEST(CheckUnbiased, unbiased_operators_pass_over_schedules_that_round_once_and_often) {
  std::vector<std::pair<char const*, gq::any_quantizer>> const all = {
      {"uniform", uniform},
      {"exponential", of(gq::levels::exponential<>{}, gq::rounding::stochastic{})},
      {"table", of(gq::levels::table{0.0, 0.1, 0.4, 1.0}, gq::rounding::stochastic{})},
      {"correlated", of(gq::levels::uniform<>{7}, gq::rounding::correlated{})},
      {"random shift", of(gq::levels::uniform<>{7}, gq::rounding::random_shift<true>{})},
      {"float16", gq::floats<gq::float16>{}},
      {"float32", gq::uncompressed{}}};
  for (auto const& [name, op] : all)
    for (char const* schedule : {"ring", "allgather"}) {
      check::settings const how{.calls = 4000};
      check::bias_report const r = check::unbiased(op, how, gq::schedule::any{schedule});
      EXPECT_EQ(r.result, check::outcome::passed) << name << '\n' << r.text();
      EXPECT_LT(r.share, 0.9) << name;
      check::variance_report const v = check::variance(op, how, gq::schedule::any{schedule});
      EXPECT_TRUE(v.passed()) << name << '\n' << v.text();
      EXPECT_EQ(v.result == check::outcome::skipped, std::isnan(v.bound)) << name;
      if (v.result == check::outcome::passed) {
        EXPECT_GT(v.share, 0) << name;
        EXPECT_LT(v.share, 1) << name;
      }
    }
}

TEST(CheckUnbiased, rounding_to_nearest_is_biased_by_what_it_leaves_out) {
  check::bias_report const r =
      check::unbiased(of(gq::levels::uniform<>{7}, gq::rounding::nearest{}), {.calls = 2000});
  EXPECT_EQ(r.result, check::outcome::failed);
  EXPECT_TRUE(std::isinf(r.largest_z)) << "each call has the same result";
  EXPECT_NE(r.text().find("declares that it is biased"), std::string::npos) << r.text();
  // half a gap at most, an eighth of it squared on average: much of a vector whose values are mostly below a gap
  EXPECT_GT(r.bias, 0.1);
  EXPECT_LT(r.bias, 0.5);
}

TEST(CheckUnbiased, eden_is_biased_on_few_large_values_by_what_the_theory_says) {
  // docs/theory.md, Few bits: the smaller of two values 1 and b in a block is lost at 1 bit: b / a of the norm
  std::vector<float> x(1024, 0.0F);
  x[3] = 1, x[700] = 0.3F;
  check::settings const how{.calls = 2000, .vectors = {x}};
  check::bias_report const r = check::unbiased(gq::operators::eden<1>(1024), how);
  EXPECT_EQ(r.result, check::outcome::failed) << r.text();
  EXPECT_NEAR(r.bias, 0.3, 0.02) << r.text();
  EXPECT_NEAR(r.growth, 0, 1e-3) << "at right angles to the vector";
  check::bias_report const rotated = check::unbiased(gq::rotated{gq::operators::eden<1>(1024), 1024}, how);
  EXPECT_TRUE(rotated.passed()) << rotated.text();
}

TEST(CheckUnbiased, single_calls_of_error_feedback_are_not_tested) {
  gq::error_feedback const op{gq::operators::cgx<2, gq::rounding::nearest>()};
  check::bias_report const r = check::unbiased(op);
  EXPECT_EQ(r.result, check::outcome::skipped);
  EXPECT_TRUE(r.passed());
  EXPECT_NE(r.text().find("does not apply"), std::string::npos);
}

TEST(CheckUnbiased, probabilities_off_by_2_percent_are_found_as_the_power_promises) {
  // values below the first level shrink by 2 %; others less
  check::bias_report const healthy = check::unbiased(of(gq::levels::uniform<>{7}, reluctant{0}));
  check::bias_report const broken = check::unbiased(of(gq::levels::uniform<>{7}, reluctant{1311}));
  EXPECT_TRUE(healthy.passed()) << healthy.text();
  EXPECT_EQ(broken.result, check::outcome::failed) << broken.text();
  EXPECT_LT(broken.growth, -0.005);
  EXPECT_GT(broken.growth, -0.02 - 0.003);
  EXPECT_LT(healthy.finds_growth, -broken.growth) << "what was found was not promised";
  EXPECT_NE(broken.text().find("BIASED"), std::string::npos);
}

TEST(CheckUnbiased, a_bias_of_one_value_is_found_99_times_of_100_at_the_stated_size_and_seldom_below) {
  check::settings how{.calls = 500};
  how.vectors = check::detail::vectors_of(how);
  int found = 0, found_below = 0, alarms = 0;
  for (how.seed = 1; how.seed <= 100; ++how.seed) {
    check::detail::sample s = check::detail::sampled(uniform, gq::schedule::allgather{}, how);
    check::bias_report const before = check::detail::bias_in(uniform, s, how);
    alarms += before.passed() ? 0 : 1;
    // the value whose bias is the hardest to find
    auto& hardest = *std::max_element(s.errors.begin(), s.errors.end(), [](auto const& a, auto const& b) {
      return a.variance() < b.variance();
    });
    auto const with = [&](double bias) {  // as if each result of it were larger
      check::detail::tally const kept = hardest;
      hardest.squares += 2 * bias * hardest.sum + hardest.calls * bias * bias;
      hardest.sum += hardest.calls * bias;
      bool const passed = check::detail::bias_in(uniform, s, how).passed();
      hardest = kept;
      return !passed;
    };
    double const size = before.finds * s.norm;
    found += with(size) ? 1 : 0;
    found_below += with(size - 2 * check::detail::quantile_99 * hardest.standard_error()) ? 1 : 0;
  }
  EXPECT_EQ(alarms, 0);
  // binomial with p = 0.99, or 0.01: beyond 95, or 5, with probability 5e-4
  EXPECT_GE(found, 95);
  EXPECT_LE(found_below, 5);
}

TEST(CheckUnbiased, a_bias_of_the_whole_vector_is_found_at_the_size_that_runs_state_in_the_median) {
  check::settings how{.workers = 1, .calls = 4000};
  how.vectors = check::detail::vectors_of(how);
  auto const with = [](double share) {
    return of(gq::levels::uniform<>{7}, reluctant{static_cast<std::uint64_t>(std::lround(share * 65536))});
  };
  std::vector<double> stated;  // by runs other than those that have to find it
  for (how.seed = 101; how.seed <= 121; ++how.seed)
    stated.push_back(check::unbiased(uniform, how).finds_growth);
  std::nth_element(stated.begin(), stated.begin() + 10, stated.end());
  check::settings often = how;
  often.calls = 40000;
  double const share =
      0.2 * stated[10] / -check::unbiased(with(0.2), often).growth;  // growth is linear in it
  ASSERT_LT(share, 1);
  int found = 0, found_below = 0;
  for (how.seed = 1; how.seed <= 100; ++how.seed) {
    found += check::unbiased(with(share), how).passed() ? 0 : 1;
    if (how.seed <= 20) found_below += check::unbiased(with(share / 2), how).passed() ? 0 : 1;
  }
  EXPECT_GE(found, 95);
  EXPECT_LE(found_below, 1);
}

TEST(CheckUnbiased, outcomes_that_no_call_shows_are_reported_as_results_that_never_change) {
  // not zero in one of 143,000 calls: the limitation that the documentation states
  gq::any_quantizer const op = gq::quantizer{gq::norm::fixed{1000}, gq::levels::uniform<>{7},
                                             gq::rounding::stochastic{}, gq::wire::int8{}};
  check::bias_report const r = check::unbiased(op, {.calls = 1000, .vectors = {{0.001F}}});
  EXPECT_FALSE(r.passed());
  EXPECT_NE(r.text().find("constant in all calls"), std::string::npos) << r.text();
}

TEST(CheckUnbiased, rare_outcomes_give_no_false_alarm_where_a_z_test_would) {
  // all values but one are 2^-9 of the only level: about 4 of 2,000 calls have it
  std::vector<float> x(200, 0x1p-9F);
  x[0] = 1;
  check::settings how{.calls = 2000, .vectors = {x}};
  int z_tests = 0;
  for (how.seed = 1; how.seed <= 10; ++how.seed) {
    check::detail::sample const s = check::detail::sampled(
        of(gq::levels::uniform<1>{}, gq::rounding::stochastic{}), gq::schedule::allgather{}, how);
    check::bias_report const r = check::detail::bias_in(uniform, s, how);
    EXPECT_TRUE(r.passed()) << r.text();
    for (auto const& t : s.errors) z_tests += std::fabs(t.mean()) > 6 * t.standard_error() + 0x1p-20 ? 1 : 0;
  }
  EXPECT_GT(z_tests, 0) << "the case does not show what it is for";
}

TEST(CheckVariance, above_the_bound_is_found) {
  check::detail::sample s = check::detail::sampled(uniform, gq::schedule::allgather{}, {.calls = 2000});
  check::variance_report const r = check::detail::variance_in(s, {});
  ASSERT_TRUE(r.passed());
  ASSERT_GT(r.finds, 1);
  s.planned.theta *= r.share / (1 + (r.finds - 1) / r.share);  // a plan that promises too little
  check::variance_report const wrong = check::detail::variance_in(s, {});
  EXPECT_EQ(wrong.result, check::outcome::failed) << wrong.text();
  EXPECT_GT(wrong.share, 1);
}

TEST(CheckSettings, what_cannot_be_tested_is_refused) {
  EXPECT_THROW(check::unbiased(uniform, {.length = 0}), gq::configuration_error);
  EXPECT_THROW(check::unbiased(uniform, {.calls = 1}), gq::configuration_error);
  EXPECT_THROW(check::unbiased(uniform, {.vectors = {{1, 2}, {1}}}), gq::configuration_error);
  EXPECT_THROW(check::unbiased(uniform, {.vectors = {{1, 2}, {-1, -2}}}), gq::configuration_error);
  EXPECT_THROW(check::unbiased(gq::floats<gq::float16>{}, {}, gq::schedule::native{}),
               gq::configuration_error);
}

}  // namespace unbiased_check_test
