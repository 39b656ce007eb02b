// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief check::all runs every check, and fails if one does.

#include "examples/custom_policy/dithered.hpp"
#include "examples/custom_policy/minifloat.hpp"
#include "examples/custom_policy/minifloat_sum.hpp"
#include "examples/custom_policy/network_order.hpp"
#include "examples/custom_policy/three_halves.hpp"

#include <globalq/check/operator.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/policies.hpp>

#include <gtest/gtest.h>

namespace operator_check_test {

namespace gq = globalq;
namespace check = gq::check;

TEST(CheckAll, runs_every_check_and_says_so) {
  gq::quantizer const all_own{three_halves{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                              minifloat_sum<3, 1>{}};
  check::report const r = check::all(all_own, {.calls = 2000, .most_workers = 3});
  EXPECT_TRUE(r.passed()) << r.text();
  for (char const* part :
       {"schedules, ring: fits", "same bits: passed", "unbiased, ring, 3 workers: passed",
        "unbiased, tree, 3 workers: passed", "unbiased, sra, 3 workers: passed",
        "unbiased, allgather, 3 workers: passed", "variance, ring, 3 workers: the plan has no bound"})
    EXPECT_NE(r.text().find(part), std::string::npos) << part << '\n' << r.text();
}

TEST(CheckAll, fails_if_one_check_does) {
  check::report const r =
      check::all(gq::operators::cgx<4, gq::rounding::nearest>(), {.calls = 2000, .most_workers = 2});
  EXPECT_FALSE(r.passed());
  EXPECT_NE(r.text().find("unbiased, sra, 3 workers: BIASED"), std::string::npos) << r.text();
  check::report const feedback =
      check::all(gq::error_feedback{gq::operators::cgx<2, gq::rounding::nearest>()}, {.most_workers = 2});
  EXPECT_TRUE(feedback.passed()) << feedback.text();
  EXPECT_NE(feedback.text().find("unbiased: does not apply"), std::string::npos);
}

}  // namespace operator_check_test
