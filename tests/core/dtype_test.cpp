// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The number types: conversions of every 16-bit pattern, loading, storing at the ends of the ranges.

#include "globalq/kernel/load_store.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "globalq/core/arithmetic.hpp"

namespace {

namespace gq = globalq;
using gq::bfloat16;
using gq::dtype;
using gq::float16;

std::uint32_t mixed(std::uint32_t& state) {
  state = state * 1664525U + 1013904223U;
  return state ^ (state >> 15);
}

/// The value of a binary16 pattern from its definition: sign, 5 bits of exponent, 10 bits of fraction.
float half_by_definition(std::uint32_t h) {
  int const field = static_cast<int>(h >> 10 & 31U), fraction = static_cast<int>(h & 1023U);
  float const magnitude = field == 31
                              ? (fraction == 0 ? std::numeric_limits<float>::infinity() : std::nanf(""))
                          : field == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                       : std::ldexp(static_cast<float>(1024 + fraction), field - 25);
  return std::copysign(magnitude, (h & 0x8000U) != 0 ? -1.0F : 1.0F);
}

/// Floats around everything that can go wrong in rounding to 16 bits, and many others; both signs.
std::vector<float> floats_to_round() {
  std::vector<float> list{0.0F,
                          65504.0F,
                          65519.99F,
                          65520.0F,
                          65536.0F,
                          1e30F,
                          0x1p-24F,
                          0x1p-25F,
                          0x1.000002p-25F,
                          0x1p-26F,
                          0x1p-14F,
                          0x1.ffcp-15F,
                          0x1.ffep-15F,
                          0x1.fffffep-15F,
                          0x1p-149F,
                          0x1p-126F,
                          0x1.fep127F,
                          0x1.fefffep127F,
                          0x1.ffp127F,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::infinity()};
  std::uint32_t state = 1;
  for (int k = 0; k < 200000; ++k) list.push_back(gq::float_of(mixed(state) & 0x7fffffffU));
  for (int k = 0; k < 200000; ++k) {  // the range of binary16, and halves between its numbers
    std::uint32_t const r = mixed(state);
    float const base = half_by_definition(r & 0x7bffU);
    list.push_back(base);
    float const next = half_by_definition((r & 0x7bffU) + 1);
    if (std::isfinite(next)) {
      float const tie = (base + next) / 2;
      list.insert(list.end(), {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e9F)});
    }
    std::uint32_t const brain = (r & 0x7f7f0000U) | 0x8000U;  // between two bfloat16
    list.insert(list.end(), {gq::float_of(brain), gq::float_of(brain - 1), gq::float_of(brain + 1)});
  }
  std::size_t const positive = list.size();
  for (std::size_t i = 0; i < positive; ++i) list.push_back(-list[i]);
  return list;
}

TEST(Float16, every_pattern_widens_exactly_and_rounds_back_to_itself) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    float const wide = float16::widen(static_cast<std::uint16_t>(h)), expected = half_by_definition(h);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << h;
      ASSERT_TRUE(std::isnan(float16::widen(float16::round(wide)))) << h;
      continue;
    }
    ASSERT_EQ(gq::bits_of(wide), gq::bits_of(expected)) << h;
    ASSERT_EQ(float16::round(wide), h);
  }
}

#if defined(__FLT16_MANT_DIG__) && !defined(__clang__) && (defined(__x86_64__) || __GNUC__ >= 13)
TEST(Float16, widens_and_rounds_as_the_compiler_does) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    auto const pattern = static_cast<std::uint16_t>(h);
    _Float16 half;
    std::memcpy(&half, &pattern, 2);
    float const wide = static_cast<float>(half);
    if (std::isnan(wide)) continue;
    ASSERT_EQ(gq::bits_of(float16::widen(pattern)), gq::bits_of(wide)) << h;
  }
  for (float x : floats_to_round()) {
    if (std::isnan(x)) continue;
    _Float16 const half = static_cast<_Float16>(x);
    std::uint16_t pattern;
    std::memcpy(&pattern, &half, 2);
    ASSERT_EQ(float16::round(x), pattern) << x;
  }
}
#endif

// Nearest: no pattern lies nearer; a tie goes to the even pattern; 65520 is the first number that becomes
// infinity.
TEST(Float16, rounds_to_the_nearest_pattern_and_ties_to_even) {
  for (float x : floats_to_round()) {
    if (!std::isfinite(x)) continue;
    std::uint16_t const h = float16::round(x);
    if (std::abs(x) >= 65520.0F) {
      ASSERT_EQ(h & 0x7fffU, 0x7c00U) << x;
      continue;
    }
    double const error = std::abs(static_cast<double>(float16::widen(h)) - x);
    for (int step : {-1, 1}) {
      int const magnitude = (h & 0x7fff) + step;
      if (magnitude < 0 || magnitude >= 0x7c00) continue;
      float const other = float16::widen(static_cast<std::uint16_t>((h & 0x8000) | magnitude));
      double const distance = std::abs(static_cast<double>(other) - x);
      ASSERT_LE(error, distance) << x;
      ASSERT_FALSE(error == distance && (h & 1U) != 0) << x << ": a tie must go to the even pattern";
    }
  }
}

TEST(Float16, nan_of_both_signs_stays_nan_and_infinity_infinity) {
  for (std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(float16::widen(float16::round(gq::float_of(bits)))));
    EXPECT_TRUE(std::isnan(bfloat16::widen(bfloat16::round(gq::float_of(bits)))));
  }
  for (float inf : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(static_cast<float>(float16(inf)), inf);
    EXPECT_EQ(static_cast<float>(bfloat16(inf)), inf);
  }
}

TEST(Bfloat16, every_pattern_is_the_upper_half_of_a_float_and_rounds_back_to_itself) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    float const wide = bfloat16::widen(static_cast<std::uint16_t>(h));
    ASSERT_EQ(gq::bits_of(wide), h << 16);
    if (!std::isnan(wide)) {
      ASSERT_EQ(bfloat16::round(wide), h);
    }
  }
}

TEST(Bfloat16, rounds_to_the_nearest_pattern_and_ties_to_even) {
  for (float x : floats_to_round()) {
    if (!std::isfinite(x)) continue;
    std::uint32_t const b = gq::bits_of(x), below = b >> 16, rest = b & 0xffffU;
    std::uint32_t const expected =
        below + (rest > 0x8000U || (rest == 0x8000U && (below & 1U) != 0) ? 1U : 0U);
    ASSERT_EQ(bfloat16::round(x), expected) << x;
  }
  EXPECT_TRUE(std::isinf(bfloat16::widen(bfloat16::round(std::numeric_limits<float>::max()))));
}

TEST(Dtype, sizes_names_and_largest_values) {
  EXPECT_EQ(gq::size_of(dtype::float32), 4U);
  EXPECT_EQ(gq::size_of(dtype::float64), 8U);
  EXPECT_EQ(gq::size_of(dtype::float16), 2U);
  EXPECT_EQ(gq::size_of(dtype::bfloat16), 2U);
  EXPECT_EQ(gq::largest(dtype::float32), std::numeric_limits<float>::max());
  EXPECT_EQ(gq::largest(dtype::float64), std::numeric_limits<double>::max());
  EXPECT_EQ(gq::largest(dtype::float16), float16::widen(0x7bff));
  EXPECT_EQ(gq::largest(dtype::bfloat16), bfloat16::widen(0x7f7f));
  static_assert(gq::Scalar<float> && gq::Scalar<double const> && gq::Scalar<float16> && gq::Scalar<bfloat16>);
  static_assert(!gq::Scalar<int> && !gq::Scalar<long double> && !gq::Scalar<void>);
}

// --- Loading -----------------------------------------------------------------------------------------------

/// Values [3, 3 + count) of a vector, times 2^exponent; one rounding to float32.
template <class Stored, class Widen>
void expect_load(dtype type, std::vector<Stored> const& values, std::vector<int> const& exponents,
                 Widen const& widen) {
  for (int exponent : exponents)
    for (int count : {0, 1, 7, 16, 17, 64, 65}) {
      std::vector<float> buffer(66, -7.0F);
      float const* z = gq::kernel::load<64>({values.data(), type}, 3, count, exponent, buffer.data());
      for (int i = 0; i < count; ++i) {
        auto const at = static_cast<std::size_t>(i) + 3;
        auto const expected =
            static_cast<float>(std::ldexp(static_cast<double>(widen(values[at])), exponent));
        ASSERT_EQ(gq::bits_of(z[i]), gq::bits_of(expected))
            << gq::name_of(type) << " 2^" << exponent << " value " << i;
      }
      ASSERT_EQ(buffer[static_cast<std::size_t>(count)], -7.0F) << "written beyond the end";
    }
}

TEST(Load, multiplies_by_the_power_of_two_and_rounds_once) {
  std::vector<int> const exponents{-126, -64, -1, 0, 1, 40, 127};
  std::vector<float> narrow;
  std::vector<double> wide;
  std::vector<std::uint16_t> half, brain;
  std::uint32_t state = 3;
  for (int i = 0; i < 80; ++i) {
    float const x = std::ldexp(static_cast<float>(mixed(state) >> 8) - 0x1p23F, i % 40 - 43);
    narrow.push_back(x);
    wide.push_back(x * (1 + static_cast<double>(i) * 0x1p-50));
    half.push_back(float16::round(x));
    brain.push_back(bfloat16::round(x));
  }
  narrow[5] = -0.0F;
  narrow[6] = 0x1p-149F;
  narrow[7] = std::numeric_limits<float>::max();
  expect_load(dtype::float32, narrow, exponents, [](float v) { return v; });
  expect_load(dtype::float64, wide, exponents, [](double v) { return v; });
  expect_load(dtype::float16, half, exponents, [](std::uint16_t v) { return float16::widen(v); });
  expect_load(dtype::bfloat16, brain, exponents, [](std::uint16_t v) { return bfloat16::widen(v); });
}

TEST(Load, brings_the_smallest_and_largest_doubles_to_float32) {
  std::vector<double> const small(80, 0x1p-1074 * 12345), large(80, -1.7e308);
  expect_load(dtype::float64, small, {1000, 1023}, [](double v) { return v; });
  expect_load(dtype::float64, large, {-1022, -1000}, [](double v) { return v; });
}

TEST(Load, float32_without_an_exponent_is_not_copied) {
  std::vector<float> const x(64, 1.5F);
  float buffer[64];
  EXPECT_EQ(gq::kernel::load<64>({x.data(), dtype::float32}, 0, 64, 0, buffer), x.data());
  EXPECT_EQ(gq::kernel::load<64>({x.data(), dtype::float32}, 9, 3, 0, buffer), x.data() + 9);
}

TEST(Load, every_half_is_widened_by_the_loop_as_by_the_function) {
  std::vector<std::uint16_t> all(1U << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> buffer(all.size());
  for (dtype type : {dtype::float16, dtype::bfloat16}) {
    gq::kernel::load<1024>({all.data(), type}, 0, static_cast<int>(all.size()), 0, buffer.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      float const v = type == dtype::float16 ? float16::widen(all[i]) : bfloat16::widen(all[i]);
      // a product makes NaN quiet
      std::uint32_t const expected = std::isnan(v) ? gq::bits_of(v) | 0x400000U : gq::bits_of(v);
      ASSERT_EQ(gq::bits_of(buffer[i]), expected) << gq::name_of(type) << ' ' << i;
    }
  }
}

// --- Storing -----------------------------------------------------------------------------------------------

std::vector<double> scales() {
  std::vector<double> list{1.4e-45, 5e-45, 1e-44, 1e-40, 1.1e-38, 1.2e-38, 2e-38, 1e-27,
                           1e-26,   0.1,   1.0,   3.0,   1e26,    1e28,    1e36,  3e38};
  for (int e = -149; e <= 127; ++e)
    for (double m : {1.37, 0x1.fffffffffffffp0, 0x1.000001fffffffp0}) list.push_back(std::ldexp(m, e));
  return list;
}

// factor carries one rounding of 2^-24, or near the ends of the range, where it is rounded down, of 2^-23
// (none for a float32 scale); the product carries another of 2^-24, both relative; a subnormal result adds a
// rounding of 2^-150. So float32 is right to 3 * 2^-24 |r| + 2^-150, between one and two units in the last
// place.
TEST(StoreScale, float32_products_are_right_to_two_units_in_the_last_place_at_every_scale) {
  for (double scale : scales())
    for (float v : {1.0F, -1.0F, 0.3333333F, 127.0F, -1e-3F, 0x1p-30F, 1000.75F}) {
      double const exact = scale * static_cast<double>(v);
      float const found = gq::store_scale(scale)(v);
      if (std::abs(exact) > 3.402e38) continue;
      ASSERT_LE(std::abs(found - exact), std::abs(exact) * (0x3p-24 + 0x1p-46) + 0x1p-150)
          << scale << " * " << v;
    }
}

TEST(StoreScale, scales_that_are_floats_give_the_correctly_rounded_product_of_normal_results) {
  for (double wide : scales()) {
    auto const scale = static_cast<float>(wide);
    for (float v : {1.0F, -1.0F, 0.3333333F, 127.0F, -1e-3F, 1000.75F}) {
      double const exact = static_cast<double>(scale) * static_cast<double>(v);  // 48 bits: exact
      if (std::abs(exact) > 3.402e38 || std::abs(exact) < 0x1p-126) continue;
      ASSERT_EQ(gq::store_scale(scale)(v), static_cast<float>(exact)) << scale << " * " << v;
    }
  }
}

// s levels of size norm / s must not add up to more than the norm, or the largest vectors would leave the
// range.
TEST(StoreScale, as_many_levels_as_make_up_the_largest_number_stay_finite) {
  for (double levels = 1; levels < 0x1p24; levels = levels < 300 ? levels + 1 : levels * 1.37 + 1) {
    double const s = std::floor(levels);
    float const narrow = gq::store_scale(gq::largest(dtype::float32) / s)(static_cast<float>(s));
    ASSERT_TRUE(std::isfinite(narrow)) << s;
    ASSERT_GE(narrow, std::numeric_limits<float>::max() * (1 - 0x1p-22F)) << s;
    ASSERT_TRUE(std::isfinite(s * gq::store_scale(gq::largest(dtype::float64) / s).wide)) << s;
  }
}

TEST(StoreScale, zero_gives_zero_and_signs_survive) {
  EXPECT_EQ(gq::bits_of(gq::store_scale(0.0)(5.0F)), 0U);
  for (double scale : scales()) {
    EXPECT_EQ(gq::bits_of(gq::store_scale(scale)(0.0F)), 0U);
    EXPECT_EQ(gq::bits_of(gq::store_scale(scale)(-0.0F)), gq::float_sign);
    EXPECT_LT(gq::store_scale(scale)(-1.0F), 0.0F);
  }
}

template <class Out>
std::vector<Out> stored(dtype type, double scale, std::vector<float> const& v, bool expect_overflow) {
  std::vector<Out> out(v.size() + 4, Out{});
  int const count = static_cast<int>(v.size());
  EXPECT_EQ(gq::kernel::store<16>({out.data(), type}, 3, count, gq::store_scale(scale), v.data()),
            expect_overflow)
      << scale;
  EXPECT_EQ(out[0], Out{});
  EXPECT_EQ(out[2], Out{});
  EXPECT_EQ(out.back(), Out{}) << "written beyond the end";
  return {out.begin() + 3, out.end() - 1};
}

TEST(Store, every_type_gets_the_product_rounded_to_it_at_an_unaligned_start) {
  std::vector<float> v;
  for (int i = 0; i < 37; ++i) v.push_back(static_cast<float>(i - 18) * 0.8125F);
  for (std::size_t count : {0U, 1U, 15U, 16U, 17U, 37U}) {
    std::vector<float> const part(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(count));
    auto const narrow = stored<float>(dtype::float32, 0.37, part, false);
    auto const wide = stored<double>(dtype::float64, 0.37, part, false);
    auto const half = stored<std::uint16_t>(dtype::float16, 0.37, part, false);
    auto const brain = stored<std::uint16_t>(dtype::bfloat16, 0.37, part, false);
    for (std::size_t i = 0; i < count; ++i) {
      float const r = gq::store_scale(0.37)(part[i]);
      ASSERT_EQ(narrow[i], r);
      ASSERT_EQ(wide[i], static_cast<double>(part[i]) * 0.37);
      ASSERT_EQ(half[i], float16::round(r));
      ASSERT_EQ(brain[i], bfloat16::round(r));
    }
  }
}

// A stride that is coprime to all powers of two meets every exponent, sign and rounding; NaN, infinity and what rounds to
// zero are among them.
TEST(Store, halves_are_rounded_by_the_loop_as_by_the_function) {
  std::vector<float> dense;
  for (std::uint64_t b = 0; b < std::uint64_t{1} << 32; b += 4093)
    dense.push_back(gq::float_of(static_cast<std::uint32_t>(b)));
  for (std::uint32_t h = 0; h < 0x10000U;
       ++h)  // the halves, and the middles between them and their neighbors
    for (std::uint32_t half_way : {0U, 0x0fffU, 0x1000U, 0x1001U})
      dense.push_back(gq::float_of(gq::bits_of(float16::widen(static_cast<std::uint16_t>(h))) + half_way));
  std::vector<std::uint16_t> out(dense.size());
  for (dtype type : {dtype::float16, dtype::bfloat16}) {
    gq::kernel::store<1024>({out.data(), type}, 0, static_cast<int>(dense.size()), gq::store_scale(1.0),
                            dense.data());
    for (std::size_t i = 0; i < dense.size(); ++i)
      ASSERT_EQ(out[i], type == dtype::float16 ? float16::round(dense[i]) : bfloat16::round(dense[i]))
          << gq::name_of(type) << ' ' << dense[i];
  }
}

TEST(Store, a_result_beyond_the_range_of_its_type_is_reported) {
  std::vector<float> v(20, 1.0F);
  stored<float>(dtype::float32, 3.4e38, v, false);
  stored<std::uint16_t>(dtype::float16, 65504.0, v, false);
  stored<std::uint16_t>(dtype::bfloat16, 3.38e38, v, false);
  stored<double>(dtype::float64, 1.7e308, v, false);
  v[13] = -2.0F;
  stored<float>(dtype::float32, 3.4e38, v, true);
  stored<std::uint16_t>(dtype::float16, 65504.0, v, true);
  stored<std::uint16_t>(dtype::bfloat16, 3.38e38, v, true);
  stored<double>(dtype::float64, 1.7e308, v, true);
  v[13] = std::nanf("");
  stored<float>(dtype::float32, 1.0, v, true);
  stored<std::uint16_t>(dtype::float16, 1.0, v, true);
}

TEST(Store, float64_holds_scales_that_float32_does_not) {
  // above 2^900 the scale is rounded down by one in the last place
  double const large = stored<double>(dtype::float64, 1e300, {3.0F}, false)[0];
  EXPECT_LE(large, 3 * 1e300);
  EXPECT_GE(large, 3 * 1e300 * (1 - 0x1p-51));
  EXPECT_EQ(stored<double>(dtype::float64, 1e250, {3.0F}, false)[0], 3 * 1e250);
  EXPECT_EQ(stored<double>(dtype::float64, 1e-300, {3.0F}, false)[0], 3 * 1e-300);
  EXPECT_EQ(stored<double>(dtype::float64, 0x1p-1074, {3.0F}, false)[0], 0x3p-1074);
}

TEST(Fill, writes_nan_or_zero_to_every_type) {
  std::vector<double> wide(5, 1.0);
  std::vector<float> narrow(5, 1.0F);
  std::vector<std::uint16_t> half(5, 1), brain(5, 1);
  for (bool nan : {true, false}) {
    gq::fill({wide.data(), dtype::float64}, 4, nan);
    gq::fill({narrow.data(), dtype::float32}, 4, nan);
    gq::fill({half.data(), dtype::float16}, 4, nan);
    gq::fill({brain.data(), dtype::bfloat16}, 4, nan);
    EXPECT_EQ(gq::bits_of(wide[3]), nan ? gq::double_nan : 0U);
    EXPECT_EQ(gq::bits_of(narrow[3]), nan ? 0x7fc00000U : 0U);
    EXPECT_EQ(half[3], nan ? 0x7e00U : 0U);
    EXPECT_EQ(brain[3], nan ? 0x7fc0U : 0U);
    EXPECT_EQ(wide[4], 1.0);
    EXPECT_EQ(half[4], 1U);
  }
}

}  // namespace
