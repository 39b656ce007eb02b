// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The norm policies: what each says of itself, and that orders given at run time say the same.

#include "globalq/norm/norms.hpp"
#include "globalq/norm/order.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace globalq_test {
namespace {

namespace gq = globalq;
using namespace gq::norm;

struct said {
  bool local;
  std::uint32_t inner, outer;
  double unit;
  std::uint64_t bucket;
  bool operator==(said const&) const = default;
};

template <gq::NormScheme Norm>
constexpr said of(Norm const& n) {
  return {Norm::is_local, n.inner(), n.outer(), n.fixed_scale(), n.bucket};
}

constexpr std::uint32_t maximum = gq::infinity;

static_assert(of(linf{}) == said{false, maximum, maximum, 0, 0});
static_assert(of(linf{.bucket = 128}) == said{false, maximum, maximum, 0, 128});
static_assert(of(l<2, 1>{}) == said{false, 2, 1, 0, 0});
static_assert(of(l<1, maximum>{.bucket = 7}) == said{false, 1, maximum, 0, 7});
static_assert(of(l<>{}) == of(l<2, 2>{}));
static_assert(of(l<>{.q = 3, .p = 64, .bucket = 5}) == of(l<3, 64>{.bucket = 5}));
static_assert(of(local<2>{}) == said{true, 2, maximum, 0, 0});
static_assert(of(local<>{}) == of(local<2>{}));
static_assert(of(local<>{.q = maximum, .bucket = 512}) == of(local<maximum>{.bucket = 512}));
static_assert(of(power_of_two<linf>{{.bucket = 9}}) == of(linf{.bucket = 9}));
static_assert(of(power_of_two<local<>>{{.q = 3}}) == of(local<3>{}));
static_assert(of(power_of_two<l<2, maximum>>{}) == of(l<2, maximum>{}));
static_assert(power_of_two<linf>::rounds_up);
static_assert(of(fixed{.scale = 0.25}) == said{false, maximum, maximum, 0.25, 0});

TEST(Norms, a_scale_is_the_norm_or_the_power_of_two_above_it) {
  order const plain = 2, rounds{2, 1.0F};
  EXPECT_EQ(plain, 2U);
  EXPECT_EQ(rounds, 2U);
  double const largest = std::numeric_limits<double>::max();
  struct row {
    double norm, scale;
  };
  for (row const& each :
       {row{1, 1}, row{0x1.0000000000001p0, 2}, row{1.5, 2}, row{2, 2}, row{0x1.8p-1000, 0x1p-999},
        row{5e-324, 5e-324}, row{0x1.8p-1073, 0x1p-1072}, row{0x1p-1030 * 1.25, 0x1p-1029},
        row{0x1p1023, 0x1p1023}, row{largest, INFINITY}, row{0, 0}, row{INFINITY, INFINITY}}) {
    EXPECT_EQ(plain.scale(each.norm), each.norm);
    EXPECT_EQ(rounds.scale(each.norm), each.scale) << each.norm;
  }
}

TEST(Norms, a_fixed_scale_that_is_none_is_not_a_number) {
  for (double unit : {0.0, -0.0, -1.0, double{NAN}})
    EXPECT_TRUE(std::isnan(fixed{.scale = unit}.fixed_scale())) << unit;
  EXPECT_EQ(fixed{}.fixed_scale(), 1);
  EXPECT_EQ(fixed{.scale = 5e-324}.fixed_scale(), 5e-324);
}

}  // namespace
}  // namespace globalq_test
