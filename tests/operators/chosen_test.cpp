// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Policies that are chosen at run time, norm::any and reduce::any, are what they were made of; what types would refuse, a plan
/// refuses.

#include <globalq/globalq.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace globalq_test {

namespace gq = globalq;
using ::testing::HasSubstr;

namespace {

template <class Norm, class Levels, class Wire, class Reduce>
std::uint64_t fingerprint(Norm norm, Levels levels, Wire wire, Reduce reduce) {
  gq::detail::operator_facts const facts =
      gq::detail::facts_of(gq::quantizer{norm, levels, gq::rounding::stochastic{}, wire, reduce});
  return gq::detail::fingerprint(facts, {});
}

TEST(Chosen, a_norm_is_what_it_was_made_of) {
  auto const expect_same = [](auto const& norm) {
    gq::norm::any const chosen = norm;
    EXPECT_EQ(chosen.bucket, norm.bucket);
    gq::levels::e2m1 const levels;
    EXPECT_EQ(fingerprint(norm, levels, gq::wire::int8{}, gq::reduce::automatic{}),
              fingerprint(chosen, levels, gq::wire::int8{}, gq::reduce::automatic{}));
    EXPECT_NE(fingerprint(gq::norm::l<7, 3>{}, levels, gq::wire::int8{}, gq::reduce::automatic{}),
              fingerprint(chosen, levels, gq::wire::int8{}, gq::reduce::automatic{}));
  };
  expect_same(gq::norm::linf{});
  expect_same(gq::norm::linf{.bucket = 128});
  expect_same(gq::norm::l1{});
  expect_same(gq::norm::l<>{.q = 3, .p = 5, .bucket = 64});
  expect_same(gq::norm::local<2>{});
  expect_same(gq::norm::local<>{.q = gq::infinity, .bucket = 9});
  expect_same(gq::norm::fixed{.scale = 0.5});
  expect_same(gq::norm::shared_exponent<gq::levels::e2m1>{});
  expect_same(gq::norm::two_level<gq::levels::e2m1>{});
  expect_same(gq::norm::power_of_two<gq::norm::linf>{{.bucket = 32}});
  expect_same(gq::norm::power_of_two<gq::norm::local<2>>{});
}

TEST(Chosen, a_way_to_reduce_is_what_it_was_made_of) {
  auto const expect_same = [](auto const& way, gq::reduce::any const& chosen) {
    EXPECT_STREQ(chosen.name(), way.name());
    EXPECT_EQ(fingerprint(gq::norm::linf{}, gq::levels::uniform<7>{}, gq::wire::int8{}, way),
              fingerprint(gq::norm::linf{}, gq::levels::uniform<7>{}, gq::wire::int8{}, chosen));
  };
  using gq::reduce::way;
  expect_same(gq::reduce::automatic{}, {});
  expect_same(gq::reduce::sum{}, {way::sum});
  expect_same(gq::reduce::requantize{}, {way::requantize});
  EXPECT_EQ(
      fingerprint(gq::norm::linf{}, gq::levels::exponential<>{}, gq::wire::int8{}, gq::reduce::exponential{}),
      fingerprint(gq::norm::linf{}, gq::levels::exponential<>{}, gq::wire::int8{},
                  gq::reduce::any{way::exponential}));
}

TEST(Chosen, what_does_not_fit_is_refused_by_a_plan) {
  auto const refusal = [](gq::norm::any const& norm, auto levels, auto wire, gq::reduce::way how) {
    return gq::plan_for(gq::quantizer{norm, levels, gq::rounding::stochastic{}, wire, gq::reduce::any{how}},
                        gq::schedule::sra{}, 4, 1000)
        .refusal;
  };
  using gq::reduce::way;
  gq::norm::linf const global;
  gq::norm::local<2> const local;
  gq::levels::uniform<7> const even;
  gq::levels::exponential<7> const powers;
  EXPECT_EQ(refusal(local, even, gq::wire::int8{}, way::automatic), "");
  EXPECT_THAT(refusal(local, even, gq::wire::int8{}, way::sum),
              HasSubstr("codes scaled by different norms cannot be added"));
  EXPECT_THAT(refusal(local, powers, gq::wire::int8{}, way::exponential),
              HasSubstr("codes scaled by different norms cannot be added"));
  EXPECT_THAT(refusal(global, powers, gq::wire::int8{}, way::sum),
              HasSubstr("reduce::sum cannot add codes of this level scheme"));
  EXPECT_THAT(refusal(global, even, gq::wire::int8{}, way::exponential),
              HasSubstr("reduce::exponential cannot add codes of this level scheme"));
  for (way how : {way::sum, way::exponential})
    EXPECT_THAT(refusal(global, even, gq::wire::elias<>{}, how),
                HasSubstr("codes in frames of different lengths cannot be added"));
}

}  // namespace

}  // namespace globalq_test
