// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Statistics of a block: maxima with NaN and infinity, sums of powers at every magnitude, roots.

#include "globalq/kernel/block_statistic.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "globalq/kernel/reduction.hpp"
#include "tests/norm/suite.hpp"

namespace globalq_test {
namespace {

using gq::dtype;
using gq::kernel::block_statistic;
using gq::norm::statistic;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint32_t orders[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 32, 63, 64, gq::infinity};

/// Magnitudes of vectors that each type can hold, down to its smallest and up to its largest numbers.
std::vector<double> magnitudes(dtype type) {
  switch (type) {
    case dtype::float64:
      return {5e-324, 1e-320, 1e-310, 2.3e-308, 1e-200, 1e-3, 1.0, 3.7e5, 1e200, 1e308, 1.7976931e308};
    case dtype::float16:
      return {6e-8, 1e-6, 6e-5, 1e-3, 1.0, 300.0, 65504.0};
    case dtype::bfloat16:
      return {1e-40, 1e-38, 1e-20, 1.0, 1e20, 3.3e38};
    default:
      return {1.4e-45, 1e-44, 1e-40, 1.2e-38, 1e-30, 1e-3, 1.0, 1e10, 1e30, 3.4e38};
  }
}

TEST(MaxBits, is_the_pattern_of_the_largest_magnitude_for_every_type) {
  for (dtype type : all_dtypes())
    for (double top : magnitudes(type))
      for (std::size_t count : {1U, 2U, 15U, 16U, 17U, 100U}) {
        stored_vector const x(type, values_up_to(top, count + 3, 0, 11));
        double largest = 0;
        for (std::size_t i = 3; i < count + 3; ++i) largest = std::max(largest, std::abs(x[i]));
        ASSERT_EQ(gq::kernel::max_bits(x.view(), 3, static_cast<int>(count)), gq::bits_of(largest))
            << gq::name_of(type) << ' ' << top;
      }
}

TEST(MaxBits, is_found_at_any_place_of_runs_of_any_length) {
  for (dtype type : all_dtypes())
    for (std::size_t count : {63U, 64U, 65U, 129U, 300U}) {
      std::vector<double> values(count, -0.5);
      for (std::size_t at = 0; at < count; ++at) {
        values[at] = at % 2 == 0 ? 0.75 : -0.75;
        ASSERT_EQ(gq::kernel::max_bits(stored_vector(type, values).view(), 0, static_cast<int>(count)),
                  gq::bits_of(0.75))
            << gq::name_of(type) << ' ' << at << " of " << count;
        values[at] = -0.5;
      }
      ASSERT_EQ(gq::kernel::max_bits(stored_vector(type, values).view(), 0, static_cast<int>(count)),
                gq::bits_of(0.5));
    }
}

TEST(MaxBits, nan_is_above_infinity_and_infinity_above_every_number_at_any_place) {
  for (dtype type : all_dtypes())
    for (std::size_t at : {0U, 1U, 16U, 36U})
      for (double sign : {1.0, -1.0}) {
        std::vector<double> values(37, gq::largest(type));
        values[at] = sign * inf;
        ASSERT_EQ(gq::kernel::max_bits(stored_vector(type, values).view(), 0, 37), gq::double_infinity)
            << gq::name_of(type);
        values[(at + 5) % 37] = std::copysign(nan, sign);
        ASSERT_EQ(gq::kernel::max_bits(stored_vector(type, values).view(), 0, 37), gq::double_nan)
            << gq::name_of(type);
      }
}

TEST(MaxBits, every_nan_of_float32_and_float64_is_the_same_pattern) {
  std::uint32_t const narrow[] = {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffc00000U};
  for (std::uint32_t const& b : narrow)
    EXPECT_EQ(gq::kernel::max_bits({&b, dtype::float32}, 0, 1), gq::double_nan);
  std::uint64_t const wide[] = {0x7ff0000000000001ULL, 0xffffffffffffffffULL};
  for (std::uint64_t const& b : wide)
    EXPECT_EQ(gq::kernel::max_bits({&b, dtype::float64}, 0, 1), gq::double_nan);
}

TEST(MaxBits, of_no_values_or_zeros_of_both_signs_is_zero) {
  for (dtype type : all_dtypes()) {
    stored_vector const x(type, {0.0, -0.0, 0.0});
    EXPECT_EQ(gq::kernel::max_bits(x.view(), 0, 3), 0U);
    EXPECT_EQ(gq::kernel::max_bits(x.view(), 0, 0), 0U);
  }
}

TEST(MaxBits, subnormals_count) {
  float const tiny = -0x1p-149F;
  EXPECT_EQ(gq::kernel::max_bits({&tiny, dtype::float32}, 0, 1), gq::bits_of(0x1p-149));
  double const wide = -0x1p-1074;
  EXPECT_EQ(gq::kernel::max_bits({&wide, dtype::float64}, 0, 1), 1U);
  std::uint16_t const half = 0x8001;
  EXPECT_EQ(gq::kernel::max_bits({&half, dtype::float16}, 0, 1), gq::bits_of(0x1p-24));
  EXPECT_EQ(gq::kernel::max_bits({&half, dtype::bfloat16}, 0, 1), gq::bits_of(0x1p-133));
}

double power(double v, std::uint32_t q) {
  double result = 0;
  gq::norm::with_power(q, [&](auto of) { result = of(v); });
  return result;
}

// v^k with e_k cuts of 2^-25 becomes v^(2k) with 2 (e_k + 1) and v^(2k + 1) with one more, and v itself is not cut: e_k is k - 2.
// The power in long double has at most q roundings of 2^-64.
TEST(Power, is_exact_up_to_order_2_and_lower_by_at_most_a_cut_for_each_order_above) {
  std::uint64_t state = 4;
  for (std::uint32_t q = 1; q <= gq::norm::max_order; ++q)
    for (int k = 0; k < 200; ++k) {
      float const v = 1 + static_cast<float>(mixed(state) >> 41) * 0x1p-23F;
      long double exact = v;
      for (std::uint32_t i = 1; i < q; ++i) exact *= static_cast<long double>(v);
      long double const found = power(v, q), cuts = q > 2 ? q - 2 : 0;
      ASSERT_LE(found, exact * (1 + q * 0x1p-64L)) << v << ' ' << q;
      ASSERT_GE(found, exact * (1 - cuts * 0x1p-25L) * (1 - q * 0x1p-64L)) << v << ' ' << q;
    }
}

// Loops of instruction sets raise and add many values at a time; fused operations and other tiles must not show.
TEST(BlockStatistic, has_the_bits_of_powers_added_one_after_the_other) {
  for (dtype type : {dtype::float32, dtype::float64})
    for (std::uint32_t q = 1; q <= gq::norm::max_order; ++q)
      for (std::size_t count : {1U, 15U, 16U, 17U, 31U, 32U, 33U, 47U, 255U, 256U, 257U, 1000U}) {
        std::vector<double> values = values_up_to(1.9, count, 3, q);
        values[count / 2] = 1.25;  // the exponent is 0, so values are summed as they are
        if (type == dtype::float64)
          for (double& v : values) v = static_cast<float>(v);
        stored_vector const x(type, values);
        double partial[16] = {};
        for (std::size_t i = 0; i < count; ++i) partial[i % 16] += power(std::abs(x[i]), q);
        double const expected = gq::norm::add_up(partial);
        for (statistic const& s :
             {block_statistic(x.view(), 0, static_cast<int>(count), q),
              gq::kernel::host::leaves_of_values().statistic(x.view(), 0, static_cast<int>(count), q)}) {
          ASSERT_EQ(gq::bits_of(s.sum), gq::bits_of(expected))
              << gq::name_of(type) << " count " << count << " q " << q;
          ASSERT_EQ(s.exponent(), 0);
        }
      }
}

TEST(BlockStatistic, gives_the_norm_at_every_magnitude_type_and_order) {
  for (dtype type : all_dtypes())
    for (double top : magnitudes(type))
      for (std::size_t count : {1U, 2U, 16U, 17U, 255U, 257U, 1000U})
        for (int decades : {0, 20}) {
          stored_vector const x(type, values_up_to(top, count + 1, decades, 77));
          for (std::uint32_t q : orders) {
            statistic const s = block_statistic(x.view(), 1, static_cast<int>(count), q);
            ASSERT_TRUE(s.finite());
            long double const exact = exact_norm(x, 1, count, q, s.exponent());
            long double const found = gq::norm::relative_norm(s, q);
            ASSERT_LE(std::fabs(found - exact), exact * norm_tolerance(type, q, count))
                << gq::name_of(type) << " top " << top << " count " << count << " q " << q;
          }
        }
}

// Without optimization a load whose value nobody uses stays: it must not lie behind an array, where the stack may end.
TEST(BlockStatistic, reads_nothing_above_its_part_of_the_stack) {
  std::vector<float> const x(gq::norm::block_values, 1.5F);
  auto const all_orders = [](void* values) -> void* {
    for (std::uint32_t q : orders)
      EXPECT_EQ(
          block_statistic({values, dtype::float32}, 0, static_cast<int>(gq::norm::block_values), q).max(),
          1.5);
    return nullptr;
  };
  std::size_t const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), size = 64 * page;
  void* const stack =
      ::mmap(nullptr, size + 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(stack) + size, 16 * page, PROT_NONE), 0);
  pthread_attr_t attributes;
  pthread_t thread;
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstack(&attributes, stack, size), 0);
  ASSERT_EQ(::pthread_create(&thread, &attributes, all_orders, const_cast<float*>(x.data())), 0);
  ASSERT_EQ(::pthread_join(thread, nullptr), 0);
  ::pthread_attr_destroy(&attributes);
  ::munmap(stack, size + 16 * page);
}

TEST(BlockStatistic, equal_values_of_a_full_block_have_their_norm_in_closed_form) {
  stored_vector const x(dtype::float32, std::vector<double>(4096, -3.0));
  EXPECT_EQ(block_statistic(x.view(), 0, 4096, 1).sum, 4096 * 1.5);
  EXPECT_EQ(block_statistic(x.view(), 0, 4096, 2).sum, 4096 * 2.25);
  EXPECT_EQ(gq::norm::relative_norm(block_statistic(x.view(), 0, 4096, 2), 2), 64 * 1.5);
}

TEST(BlockStatistic, zeros_and_no_values_give_zero) {
  stored_vector const x(dtype::float32, std::vector<double>(20, -0.0));
  for (std::uint32_t q : orders)
    for (int count : {0, 1, 20}) {
      statistic const s = block_statistic(x.view(), 0, count, q);
      EXPECT_EQ(s.max_bits, 0U);
      EXPECT_EQ(s.sum, 0.0);
      EXPECT_EQ(gq::norm::relative_norm(s, q), 0.0);
    }
}

TEST(BlockStatistic, nan_and_infinity_are_seen_and_not_summed) {
  for (dtype type : all_dtypes())
    for (double bad : {inf, -inf, nan}) {
      stored_vector const x(type, {1.0, bad, 2.0});
      statistic const s = block_statistic(x.view(), 0, 3, 2);
      EXPECT_FALSE(s.finite());
      EXPECT_EQ(s.max_bits, std::isnan(bad) ? gq::double_nan : gq::double_infinity);
    }
}

TEST(BlockStatistic, a_norm_is_never_below_the_largest_coordinate) {
  for (dtype type : all_dtypes())
    for (double top : magnitudes(type))
      for (std::uint32_t q : orders)
        for (std::size_t count : {1U, 3U, 50U}) {
          stored_vector const x(type, values_up_to(top, count, 30, 3));
          statistic const s = block_statistic(x.view(), 0, static_cast<int>(count), q);
          if (s.max_bits == 0) continue;
          ASSERT_GE(gq::norm::relative_norm(s, q), std::ldexp(s.max(), -s.exponent()))
              << gq::name_of(type) << ' ' << q;
          ASSERT_LT(std::ldexp(s.max(), -s.exponent()), 2.0);
        }
}

TEST(Merge, gives_the_statistic_of_both_parts_whatever_their_magnitudes) {
  for (double ratio : {1.0, 0.25, 1e-8, 1e-30})
    for (std::uint32_t q : orders) {
      std::vector<double> values = values_up_to(3.0, 64, 5, 21);
      for (std::size_t i = 0; i < 32; ++i) values[i] *= ratio;
      stored_vector const x(dtype::float32, values);
      statistic const a = block_statistic(x.view(), 0, 32, q), b = block_statistic(x.view(), 32, 32, q);
      statistic const ab = gq::norm::merge(a, b, q), ba = gq::norm::merge(b, a, q);
      EXPECT_EQ(ab.max_bits, ba.max_bits);
      EXPECT_EQ(ab.sum, ba.sum);
      long double const exact = exact_norm(x, 0, 64, q, ab.exponent());
      EXPECT_LE(std::fabs(gq::norm::relative_norm(ab, q) - exact),
                exact * norm_tolerance(dtype::float32, q, 64))
          << q;
    }
}

TEST(Merge, nothing_and_zeros_change_nothing) {
  stored_vector const x(dtype::float32, values_up_to(1e-20, 32, 5, 22));
  for (std::uint32_t q : orders) {
    statistic const a = block_statistic(x.view(), 0, 32, q);
    for (statistic const& m : {gq::norm::merge(a, statistic{}, q), gq::norm::merge(statistic{}, a, q)}) {
      EXPECT_EQ(m.max_bits, a.max_bits);
      EXPECT_EQ(m.sum, a.sum);
    }
  }
}

TEST(Merge, keeps_nan_above_infinity_above_numbers) {
  statistic const number{gq::bits_of(1e300), 1.0}, infinite{gq::double_infinity, 0}, none{gq::double_nan, 0};
  for (std::uint32_t q : orders) {
    EXPECT_EQ(gq::norm::merge(number, infinite, q).max_bits, gq::double_infinity);
    EXPECT_EQ(gq::norm::merge(none, infinite, q).max_bits, gq::double_nan);
    EXPECT_EQ(gq::norm::merge(infinite, none, q).max_bits, gq::double_nan);
    EXPECT_EQ(gq::norm::merge(number, none, q).max_bits, gq::double_nan);
  }
}

// y <- ((q-1) y + x / y^(q-1)) / q: near the root the error of y itself cancels; what stays is the rounding
// of (q-1) y and of the quotient with its q - 2 products, both weighted by (q-1)/q, of the sum and of the
// division: 4 times 2^-53.
TEST(Root, is_right_to_four_roundings_for_every_order_and_argument) {
  std::uint64_t state = 8;
  for (std::uint32_t q = 1; q <= gq::norm::max_order; ++q)
    for (int k = 0; k < 120; ++k) {
      double const x = std::ldexp(1.0 + static_cast<double>(mixed(state) >> 12) * 0x1p-52, k / 2);
      long double const exact = q == 1 ? x : std::pow(static_cast<long double>(x), 1.0L / q);
      ASSERT_LE(std::fabs(gq::norm::root(x, q) - exact), exact * 4.01L * 0x1p-53L) << x << ' ' << q;
    }
}

TEST(Root, stops_only_where_further_steps_change_nothing) {
  std::uint64_t state = 9;
  for (std::uint32_t q = 3; q <= gq::norm::max_order; ++q)
    for (int k = 0; k < 500; ++k) {
      double const x = std::ldexp(1.0 + static_cast<double>(mixed(state) >> 12) * 0x1p-52, k % 100);
      double y = gq::norm::detail::near_root(x, q);
      for (std::uint32_t step = 0; step < 16 + 2 * q; ++step) {
        double const quotient = gq::rounded(x / gq::norm::rounded_power(y, q - 1));
        y = gq::rounded(gq::rounded(gq::rounded((q - 1) * y) + quotient) / gq::rounded(q));
      }
      ASSERT_EQ(gq::norm::root(x, q), y) << x << ' ' << q;
    }
}

// Sums of powers are larger: 2^48 values of magnitude below 2 with q = 64.
TEST(Root, is_as_right_for_the_largest_sums_of_powers) {
  for (std::uint32_t q : {1U, 2U, 3U, 7U, 63U, 64U})
    for (int e : {64, 76, 100, 112}) {
      double const x = std::ldexp(1.7, e);
      long double const exact = q == 1 ? x : std::pow(static_cast<long double>(x), 1.0L / q);
      EXPECT_LE(std::fabs(gq::norm::root(x, q) - exact), exact * 4.01L * 0x1p-53L) << e << ' ' << q;
    }
}

TEST(Root, of_a_power_of_a_power_of_two_is_exact) {
  for (std::uint32_t q : {1U, 2U, 3U, 4U, 5U, 6U, 10U, 30U, 64U}) {
    EXPECT_EQ(gq::norm::root(0.0, q), 0.0);
    EXPECT_EQ(gq::norm::root(1.0, q), 1.0);
    if (q <= 30) {
      EXPECT_EQ(gq::norm::root(std::ldexp(1.0, 2 * static_cast<int>(q)), q), 4.0);
    }
  }
}

// float32 and narrower: rounded up to 24 bits (see core/scale_word.hpp); float64: as it is.
TEST(LocalUnit, is_the_norm_in_what_travels_and_never_below_the_maximum) {
  for (dtype type : all_dtypes())
    for (double top : magnitudes(type))
      for (std::uint32_t q : {1U, 2U, 3U, gq::infinity}) {
        if (type == dtype::float64 && top > 1e300) continue;  // the caller divides such by 2^wide: below
        stored_vector const x(type, values_up_to(top, 50, 10, 5));
        statistic const s = block_statistic(x.view(), 0, 50, q);
        double const scale = gq::norm::local_scale(s, q, type, 0);
        long double const exact = std::ldexp(exact_norm(x, 0, 50, q, s.exponent()), s.exponent());
        ASSERT_GE(scale, s.max()) << gq::name_of(type) << ' ' << top;
        ASSERT_EQ(gq::representable(scale, type), scale);
        // near the smallest doubles the last rounding is of 2^-1075
        long double const up = type == dtype::float64 ? 0 : 0x1p-23L;
        ASSERT_GE(scale, exact * (1 - norm_tolerance(type, q, 50)) - 0x1p-1074L)
            << gq::name_of(type) << ' ' << top;
        ASSERT_LE(scale, exact * (1 + up) * (1 + norm_tolerance(type, q, 50)) + 0x1p-1074L)
            << gq::name_of(type) << ' ' << top;
      }
}

TEST(LocalUnit, of_a_maximum_is_exact_and_divided_by_2_to_wide) {
  stored_vector const x(dtype::float64, {1.7e308, -0.5e308});
  statistic const s = block_statistic(x.view(), 0, 2, gq::infinity);
  EXPECT_EQ(gq::norm::local_scale(s, gq::infinity, dtype::float64, 0), 1.7e308);
  EXPECT_EQ(gq::norm::local_scale(s, gq::infinity, dtype::float64, 64), std::ldexp(1.7e308, -64));
  stored_vector const tiny(dtype::float32, {0x1p-149});
  EXPECT_EQ(gq::norm::local_scale(block_statistic(tiny.view(), 0, 1, 2), 2, dtype::float32, 0), 0x1p-149);
  EXPECT_EQ(gq::norm::local_scale(statistic{}, 2, dtype::float32, 0), 0.0);
  // a sum of 2^40 equal values would leave the range of doubles
  statistic const many{gq::bits_of(1.5e308), 0x1p40};
  EXPECT_TRUE(std::isfinite(gq::norm::local_scale(many, 1, dtype::float64, 128)));
}

}  // namespace
}  // namespace globalq_test
