// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Scales in 32 bits: exact for float32, rounded up else, ordered, and right at the ends of their
/// range.

#include "globalq/core/scale_word.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

namespace gq = globalq;

std::uint64_t mixed(std::uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state ^ (state >> 29);
}

TEST(ScaleWord, every_power_of_two_of_its_range_is_exact) {
  for (int e = -255; e <= 255; ++e)
    ASSERT_EQ(gq::scale_of_word(gq::scale_word(std::ldexp(1.0, e))), std::ldexp(1.0, e)) << e;
}

TEST(ScaleWord, every_float32_is_exact) {
  for (int e = -149; e <= 127; ++e)
    ASSERT_EQ(gq::scale_of_word(gq::scale_word(std::ldexp(1.0F, e))), std::ldexp(1.0F, e)) << e;
  std::uint64_t state = 3;
  for (int k = 0; k < 200000; ++k) {
    float const x = gq::float_of(static_cast<std::uint32_t>(mixed(state)) & gq::float_magnitude);
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(gq::scale_of_word(gq::scale_word(x)), x);
  }
  for (std::uint32_t bits : {1U, 2U, 3U, 0x7fffffU, 0x800000U, 0x7f7fffffU})
    ASSERT_EQ(gq::scale_of_word(gq::scale_word(gq::float_of(bits))), gq::float_of(bits)) << bits;
}

TEST(ScaleWord, powers_of_two_times_a_scale_are_exact) {
  std::uint64_t state = 5;
  for (int k = 0; k < 20000; ++k) {
    auto const word = static_cast<std::uint32_t>(mixed(state));
    double const scale = gq::scale_of_word(word);
    for (int by : {-512, -256, -3, 0, 1, 256, 511})
      ASSERT_EQ(gq::scale_of_word(word, by), std::ldexp(scale, by)) << word << ", " << by;
    if (scale > 0) {
      ASSERT_EQ(gq::exponent_of_word(word), gq::exponent_of(scale)) << word;
    }
  }
}

TEST(ScaleWord, zero_is_zero) {
  EXPECT_EQ(gq::scale_word(0.0), 0U);
  EXPECT_EQ(gq::scale_of_word(0), 0.0);
}

// 24 significant bits: at most one part in 2^23 above, never below, and the next smaller word would be below.
TEST(ScaleWord, other_numbers_are_rounded_up_to_the_next_word) {
  std::uint64_t state = 4;
  for (int k = 0; k < 200000; ++k) {
    std::uint64_t const m = mixed(state);
    double const x =
        std::ldexp(1.0 + static_cast<double>(m >> 12) * 0x1p-52, static_cast<int>(mixed(state) % 510) - 255);
    std::uint32_t const word = gq::scale_word(x);
    ASSERT_GE(gq::scale_of_word(word), x);
    ASSERT_LE(gq::scale_of_word(word), x * (1 + 0x1p-23));
    ASSERT_LT(gq::scale_of_word(word - 1), x);
  }
}

TEST(ScaleWord, words_order_as_scales_do) {
  std::vector<double> scales{0.0, 1e-320, 0x1p-300};
  std::uint64_t state = 5;
  for (int k = 0; k < 20000; ++k)
    scales.push_back(std::ldexp(1.0 + static_cast<double>(mixed(state) >> 12) * 0x1p-52,
                                static_cast<int>(mixed(state) % 510) - 255));
  std::sort(scales.begin(), scales.end());
  for (std::size_t i = 1; i < scales.size(); ++i)
    ASSERT_LE(gq::scale_word(scales[i - 1]), gq::scale_word(scales[i]));
  for (std::uint32_t word : {1U << 23, 0x00ffffffU, 0x12345678U, 0x7fffffffU, 0x80000000U, 0xfffffffeU})
    ASSERT_LT(gq::scale_of_word(word), gq::scale_of_word(word + 1));
}

TEST(ScaleWord, every_word_that_is_a_scale_comes_back) {
  for (std::uint64_t word = 1U << 23; word <= 0xffffffffU; word += 104729)
    ASSERT_EQ(gq::scale_word(gq::scale_of_word(static_cast<std::uint32_t>(word))), word);
}

TEST(ScaleWord, the_ends_of_the_range) {
  EXPECT_EQ(gq::scale_word(0x1p-255), 1U << 23);
  EXPECT_EQ(gq::scale_of_word(1U << 23), 0x1p-255);
  EXPECT_EQ(gq::scale_word(0x1p-256), 1U << 23) << "rounded up, never to zero";
  EXPECT_EQ(gq::scale_word(0x1p-1074), 1U << 23);
  EXPECT_EQ(gq::scale_word(0x1.fffffffffffffp-256), 1U << 23);
  EXPECT_EQ(gq::scale_word(0x1.fffffep255), 0xffffffffU);
  EXPECT_EQ(gq::scale_of_word(0xffffffffU), 0x1.fffffep255);
  EXPECT_EQ(gq::scale_of_word(0x7fffffU), 0.0) << "below the first scale there is only zero";
}

TEST(ScaleWord, float64_scales_travel_as_they_are) {
  EXPECT_EQ(gq::representable(0.1, gq::dtype::float64), 0.1);
  EXPECT_EQ(gq::representable(1e300, gq::dtype::float64), 1e300);
  EXPECT_GT(gq::representable(0.1, gq::dtype::float32), 0.1);
  EXPECT_EQ(gq::scale_bytes(gq::dtype::float64), 8U);
  for (gq::dtype type : {gq::dtype::float32, gq::dtype::float16, gq::dtype::bfloat16})
    EXPECT_EQ(gq::scale_bytes(type), 4U);
}

/// The numbers of E4M3, from its definition: sign, 4 bits of exponent with bias 7, 3 of mantissa.
double e4m3(unsigned byte) {
  unsigned const exponent = byte >> 3, mantissa = byte & 7;
  return std::ldexp(exponent == 0 ? mantissa : 8 + mantissa, static_cast<int>(std::max(exponent, 1U)) - 10);
}

TEST(TwoLevels, bytes_are_e4m3) {
  EXPECT_EQ(e4m3(1), 0x1p-9);
  EXPECT_EQ(e4m3(126), 448);
  for (unsigned byte = 0; byte <= 126; ++byte)
    ASSERT_EQ(gq::number_of_e4m3(static_cast<std::uint8_t>(byte)), e4m3(byte)) << byte;
}

/// At, just below and just above each number, for units of any exponent: the smallest byte that is not below.
TEST(TwoLevels, block_scales_are_the_smallest_that_cut_nothing) {
  std::uint64_t state = 7;
  for (int e = -255; e <= 255; ++e)
    for (int k = 0; k < 4; ++k) {
      // 6 times a word of 24 bits
      double const unit = 6 * std::ldexp(1 + static_cast<double>(mixed(state) >> 41) * 0x1p-23, e);
      for (unsigned byte = 0; byte < 126; ++byte) {
        double const at = e4m3(byte) * unit, next = e4m3(byte + 1) * unit;
        ASSERT_EQ(gq::e4m3_above(at, unit), byte) << e;
        ASSERT_EQ(gq::e4m3_above(std::nextafter(at, INFINITY), unit), byte + 1) << e;
        ASSERT_EQ(gq::e4m3_above(std::nextafter(next, 0), unit), byte + 1) << e;
        double const between = at + static_cast<double>(mixed(state) >> 11 | 1) * 0x1p-53 * (next - at);
        if (between < next) {
          ASSERT_EQ(gq::e4m3_above(between, unit), byte + 1) << e;
        }
      }
      ASSERT_EQ(gq::e4m3_above(448 * unit, unit), 126);
      ASSERT_EQ(gq::e4m3_above(0, unit), 0);
      ASSERT_EQ(gq::e4m3_above(0x1p-400, unit), 1) << "far below all numbers";
    }
}

TEST(TwoLevels, the_scale_of_a_vector_covers_its_largest_value_and_every_block) {
  gq::scale_format const form{gq::dtype::float32, 6.0F, gq::scale_byte::e4m3};
  std::uint64_t state = 9;
  for (int e = -149; e <= 127; ++e)
    for (int k = 0; k < 50; ++k) {
      double const mantissa = k == 0 ? 1
                                     : (k == 1 ? 2 - 0x1p-23
                                               : 1 + static_cast<double>(mixed(state) >> 41) * 0x1p-23),
                   largest = std::ldexp(mantissa, e), scale = gq::vector_scale_of(largest, form);
      ASSERT_EQ(scale, largest * 0x1p-11) << "a float32 has 24 bits, so nothing is rounded";
      for (int below = 0; below < 40; ++below) {
        double const most = std::ldexp(largest, -below) *
                            (below == 0 ? 1 : 1 + static_cast<double>(mixed(state) >> 41) * 0x1p-24),
                     block = gq::block_scale_of(most, scale, form);
        ASSERT_GE(block, most);
        ASSERT_LE(block, most + std::max(most / 8, 6 * scale * 0x1p-9));
        std::byte frame[16] = {};
        gq::store_to(frame, gq::scale_word(scale));
        gq::write_scale(frame, 3, form, most);
        ASSERT_EQ(gq::read_scale(frame, 3, form), block);
      }
    }
  EXPECT_EQ(gq::vector_scale_of(0, form), 0);
  EXPECT_EQ(gq::block_scale_of(0, 0, form), 0);
}

}  // namespace
