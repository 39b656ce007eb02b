// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief How the norms of the workers become one: against long double, in rank order, at the ends of the
/// range.

#include "globalq/schedule/detail/scales.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

namespace gq = globalq;
using gq::detail::combine_norms;

constexpr std::uint32_t orders[] = {1, 2, 3, 7, 64};

std::vector<double> norms(std::size_t n, int spread, std::uint64_t seed) {
  std::vector<double> list;
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    list.push_back(std::ldexp(1.0 + static_cast<double>(state >> 12) * 0x1p-52,
                              -static_cast<int>(i * 7 % static_cast<std::size_t>(spread))));
  }
  return list;
}

long double exact(std::vector<double> const& a, std::uint32_t p) {
  long double const top = *std::max_element(a.begin(), a.end());
  long double sum = 0;
  for (double v : a) {
    long double power = 1;
    for (std::uint32_t k = 0; k < p; ++k) power *= v / top;
    sum += power;
  }
  return top * (p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1.0L / p));
}

// In units of 2^-53: a share 1, its power p + (p - 1), the sum n - 1 more, all divided by p; the root 4, the
// product 1.
TEST(CombineNorms, gives_the_outer_norm_of_the_workers) {
  for (std::size_t n : {1U, 2U, 3U, 7U, 64U, 1000U})
    for (std::uint32_t p : orders)
      for (int spread : {1, 20, 300}) {
        std::vector<double> const a = norms(n, spread, 3 * n + p);
        long double const reference = exact(a, p);
        long double const roundings = (2.0L * p + static_cast<long double>(n)) / p + 5;
        ASSERT_LE(std::fabs(combine_norms(a, p) - reference), reference * roundings * 0x1p-53L)
            << n << ' ' << p;
      }
}

TEST(CombineNorms, of_order_infinity_is_the_maximum) {
  EXPECT_EQ(combine_norms(std::vector<double>{0.5, 3.0, 0.0}, gq::infinity), 3.0);
}

TEST(CombineNorms, of_one_worker_is_its_own_norm) {
  for (std::uint32_t p : orders)
    for (double v : {1.0, 0.1, 1e-300, 1.7e308, 0x1p-1074})
      EXPECT_EQ(combine_norms(std::vector<double>{v}, p), v) << p;
}

TEST(CombineNorms, of_zeros_is_zero_and_zeros_change_nothing) {
  for (std::uint32_t p : orders) {
    EXPECT_EQ(combine_norms(std::vector<double>{0, 0, 0}, p), 0.0);
    EXPECT_EQ(combine_norms(std::vector<double>{0, 3.7, 0}, p), 3.7);
  }
}

TEST(CombineNorms, any_order_of_workers_is_near_and_the_rank_order_is_always_the_same_bits) {
  std::vector<double> a = norms(50, 30, 5);
  for (std::uint32_t p : orders) {
    double const in_order = combine_norms(a, p);
    EXPECT_EQ(gq::bits_of(combine_norms(a, p)), gq::bits_of(in_order));
    std::vector<double> turned = a;
    for (int k = 0; k < 20; ++k) {
      std::rotate(turned.begin(), turned.begin() + 1 + k % 7, turned.end());
      EXPECT_NEAR(combine_norms(turned, p), in_order, in_order * 2 * (2 + 50.0 / p + 5) * 0x1p-53) << p;
    }
  }
}

// Shares are at most 1 and so are their powers: nothing overflows before the last product.
TEST(CombineNorms, tiny_and_huge_norms_give_no_zero_and_no_infinity) {
  for (std::uint32_t p : orders) {
    EXPECT_GE(combine_norms(std::vector<double>{1e-320, 1e-320}, p), 1e-320);
    EXPECT_GE(combine_norms(std::vector<double>{1e300, 1e-300, 1e300}, p), 1e300);
    EXPECT_LE(combine_norms(std::vector<double>{1e300, 1e-300, 1e300}, p), 2.01e300);
  }
}

TEST(CombineNorms, is_never_below_the_largest_norm) {
  for (std::uint32_t p : orders)
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      std::vector<double> const a = norms(5, 60, seed);
      ASSERT_GE(combine_norms(a, p), *std::max_element(a.begin(), a.end())) << p << ' ' << seed;
    }
}

}  // namespace
