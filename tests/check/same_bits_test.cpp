// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief check::same_bits and check::schedules: what they run, and what they find.

#include "examples/custom_policy/dithered.hpp"
#include "examples/custom_policy/funnel.hpp"
#include "examples/custom_policy/minifloat.hpp"
#include "examples/custom_policy/minifloat_sum.hpp"
#include "examples/custom_policy/network_order.hpp"
#include "examples/custom_policy/three_halves.hpp"

#include <globalq/check/same_bits.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/policies.hpp>

#include <gtest/gtest.h>

#include <utility>

namespace same_bits_check_test {

namespace gq = globalq;
namespace check = gq::check;

thread_local int rank_here = 0;

/// Allgather that tells the levels below which worker decodes.
struct telling : gq::schedule::allgather {
  template <class T, class... Rest>
  void operator()(T& t, Rest&&... rest) const {
    rank_here = t.rank();
    gq::schedule::allgather::operator()(t, std::forward<Rest>(rest)...);
  }
};

/// Even levels, of which those from First on depend on the worker: by one part in 1,024.
template <std::uint32_t First>
struct unlike_levels {
  static constexpr char const* name = "unlike";
  std::uint64_t parameters() const { return First; }
  GLOBALQ_FUNCTION float extent() const { return inner.extent(); }
  GLOBALQ_FUNCTION std::uint32_t max_code() const { return inner.max_code(); }
  GLOBALQ_FUNCTION gq::neighbors locate(float t) const { return inner.locate(t); }
  float value(std::uint32_t code) const {
    return inner.value(code) * (code >= First && rank_here == 1 ? 1.0F + 0x1p-10F : 1.0F);
  }
  gq::levels::uniform<> inner{1000};
};
template <std::uint32_t First>
gq::any_quantizer unlike() {
  return gq::quantizer{gq::norm::local<gq::infinity>{}, unlike_levels<First>{}, gq::rounding::stochastic{},
                       gq::wire::int16{}};
}

gq::any_quantizer const cgx = gq::operators::cgx<4>();
gq::quantizer const all_own{three_halves{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                            minifloat_sum<3, 1>{}};

TEST(CheckSameBits, holds_for_operators_of_the_library_and_of_users) {
  for (gq::any_quantizer const& op :
       {cgx, gq::any_quantizer(all_own), gq::any_quantizer(gq::floats<gq::bfloat16>{}),
        gq::any_quantizer(gq::error_feedback{gq::operators::cgx<2, gq::rounding::nearest>()})}) {
    check::bits_report const r = check::same_bits(op, {.most_workers = 4});
    EXPECT_EQ(r.result, check::outcome::passed) << r.text();
    // two calls, nine lengths, with and without chunks, 1 + 2 + 3 + 4 workers, over two schedules at least
    EXPECT_GE(r.compared, 2U * 9 * 2 * 10 * 2) << r.text();
  }
  EXPECT_TRUE(check::same_bits(all_own, {.most_workers = 9}, funnel{}).passed());
}

TEST(CheckSameBits, finds_levels_that_depend_on_the_worker) {
  check::bits_report const r =
      check::same_bits(unlike<300>(), {}, telling{});  // frames have a hash of the first 256
  EXPECT_EQ(r.result, check::outcome::failed);
  EXPECT_NE(r.text().find("DIFFER: 2 workers, 1 values: worker 1 holds other bits than worker 0"),
            std::string::npos)
      << r.text();
  EXPECT_TRUE(check::same_bits(unlike<1001>(), {}, telling{}).passed());  // no level is
}

TEST(CheckSameBits, reports_what_a_call_throws) {
  check::bits_report const r = check::same_bits(unlike<1>(), {}, telling{});
  EXPECT_EQ(r.result, check::outcome::failed);
  EXPECT_NE(r.text().find("FAILED: 2 workers: globalq: "), std::string::npos) << r.text();
}

TEST(CheckSchedules, says_which_fit_and_why_others_do_not) {
  std::string const text = check::schedules(cgx).text();
  EXPECT_NE(text.find("schedules, ring: fits: "), std::string::npos) << text;
  EXPECT_NE(text.find("3 roundings, theta at most "), std::string::npos) << text;
  gq::plan const refused = gq::plan_for(cgx, gq::schedule::native{}, 3, 300);
  ASSERT_FALSE(refused.fits);
  EXPECT_NE(text.find("schedules, native: does not fit: " + refused.refusal), std::string::npos) << text;
}

TEST(CheckSchedules, an_operator_that_fits_none_fails) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{7}, gq::rounding::stochastic{},
                         gq::wire::packed<>{2}};
  check::report const r = check::schedules(op);
  EXPECT_FALSE(r.passed()) << r.text();
}

}  // namespace same_bits_check_test
