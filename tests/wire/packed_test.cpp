// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Packed wires of 1 to 8 bits: the suite, golden bytes, and every byte that pack() cannot have made.

#include "globalq/wire/packed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/wire/suite.hpp"

namespace globalq_test {

using gq::wire::packed;

template <std::uint32_t B>
struct static_formats {
  using wire = packed<B>;
  static std::vector<wire> all() { return {wire{}}; }
};
struct run_time_formats {
  using wire = packed<>;
  static std::vector<wire> all() {
    std::vector<wire> list;
    for (std::uint32_t bits = 1; bits <= 8; ++bits) list.emplace_back(bits);
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(packed_at_run_time, wire_format_suite, run_time_formats);
using compile_time_formats =
    ::testing::Types<static_formats<1>, static_formats<2>, static_formats<3>, static_formats<4>,
                     static_formats<5>, static_formats<6>, static_formats<7>, static_formats<8>>;
INSTANTIATE_TYPED_TEST_SUITE_P(packed, wire_format_suite, compile_time_formats);

namespace {

std::vector<std::byte> bytes_of(packed<> const& wire, std::vector<std::int8_t> const& codes, bool zero_free) {
  std::vector<std::byte> bytes(wire.bytes(codes.size()), std::byte{0xff});
  wire.pack(codes.data(), static_cast<int>(codes.size()), bytes.data(), zero_free);
  return bytes;
}
std::vector<int> numbers(std::vector<std::byte> const& bytes) {
  std::vector<int> list;
  for (std::byte b : bytes) list.push_back(std::to_integer<int>(b));
  return list;
}

TEST(PackedWire, compile_time_and_run_time_bits_make_the_same_bytes) {
  auto const compare = [](auto wire) {
    packed<> const other(static_cast<std::uint32_t>(wire.bits()));
    EXPECT_EQ(wire.identifier(), other.identifier());
    for (bool zero_free : {false, true}) {
      EXPECT_EQ(wire.largest_code(zero_free), other.largest_code(zero_free));
      std::vector<std::int8_t> const codes = codes_for(wire, 67, zero_free, 0);
      std::vector<std::byte> bytes(wire.bytes(67));
      wire.pack(codes.data(), 67, bytes.data(), zero_free);
      EXPECT_EQ(bytes, bytes_of(other, codes, zero_free));
    }
  };
  compare(packed<1>{});
  compare(packed<2>{});
  compare(packed<3>{});
  compare(packed<4>{});
  compare(packed<5>{});
  compare(packed<6>{});
  compare(packed<7>{});
  compare(packed<8>{});
}

TEST(PackedWire, largest_codes_use_every_pattern_but_one_sign) {
  std::uint32_t const with_zero[] = {0, 1, 3, 7, 15, 31, 63, 127}, without[] = {1, 2, 4, 8, 16, 32, 64, 127};
  for (std::uint32_t bits = 1; bits <= 8; ++bits) {
    EXPECT_EQ(packed<>(bits).largest_code(false), with_zero[bits - 1]) << bits;
    EXPECT_EQ(packed<>(bits).largest_code(true), without[bits - 1]) << bits;
    EXPECT_EQ(packed<>(bits).identifier(), 16 + bits);
  }
}

// Magnitude below, sign above, the first code in the lowest bits. Other bytes are another format: bump its
// version.
TEST(PackedWire, golden_bytes_with_zero) {
  EXPECT_EQ(numbers(bytes_of(packed<>(2), {1, -1, 0, 1, -1}, false)),
            (std::vector<int>{0b01001101, 0b00000011}));
  EXPECT_EQ(numbers(bytes_of(packed<>(3), {1, -2, 3, -3, 0}, false)),
            (std::vector<int>{0b11110001, 0b00001110}));
  EXPECT_EQ(numbers(bytes_of(packed<>(4), {5, -7, 1}, false)), (std::vector<int>{0xf5, 0x01}));
  EXPECT_EQ(numbers(bytes_of(packed<>(5), {15, -1}, false)), (std::vector<int>{0b00101111, 0b00000010}));
  EXPECT_EQ(numbers(bytes_of(packed<>(6), {31, -31, 1}, false)),
            (std::vector<int>{0b11011111, 0b00011111, 0}));
  EXPECT_EQ(numbers(bytes_of(packed<>(7), {-63, 1}, false)), (std::vector<int>{0b11111111, 0b00000000}));
  EXPECT_EQ(numbers(bytes_of(packed<>(8), {127, -127, -1}, false)), (std::vector<int>{0x7f, 0xff, 0x81}));
}

TEST(PackedWire, golden_bytes_without_zero) {
  EXPECT_EQ(numbers(bytes_of(packed<>(1), {1, -1, -1, 1, 1, 1, 1, -1, -1}, true)),
            (std::vector<int>{0b10000110, 1}));
  EXPECT_EQ(numbers(bytes_of(packed<>(2), {1, -1, 2, -2}, true)), (std::vector<int>{0b11011000}));
  EXPECT_EQ(numbers(bytes_of(packed<>(4), {8, -8}, true)), (std::vector<int>{0xf7}));
}

// Every pattern of one code, followed by codes that are fine: only minus zero is bad, and only where zero
// exists.
TEST(PackedWire, minus_zero_is_refused_at_any_place_where_levels_have_a_zero) {
  for (std::uint32_t bits = 1; bits <= 8; ++bits) {
    packed<> const wire(bits);
    for (int count : {1, 2, 3, 7, 8, 9, 16, 17, 33})
      for (int at = 0; at < count; ++at) {
        std::vector<std::byte> bytes(wire.bytes(static_cast<std::uint64_t>(count)));
        std::size_t const sign = static_cast<std::size_t>(at) * bits + bits - 1;
        bytes[sign / 8] |= std::byte{1} << (sign % 8);
        std::vector<std::int8_t> codes(static_cast<std::size_t>(count));
        ASSERT_TRUE(wire.unpack(bytes.data(), count, codes.data(), false))
            << bits << " bits, " << at << " of " << count;
        ASSERT_FALSE(wire.unpack(bytes.data(), count, codes.data(), true))
            << bits << " bits, " << at << " of " << count;
        ASSERT_EQ(codes[static_cast<std::size_t>(at)], -1);
      }
  }
}

TEST(PackedWire, any_unused_bit_at_the_end_is_refused) {
  for (std::uint32_t bits = 1; bits <= 8; ++bits) {
    packed<> const wire(bits);
    for (int count = 1; count <= 17; ++count)
      for (bool zero_free : {false, true}) {
        if (!zero_free && bits == 1) continue;
        std::vector<std::int8_t> const codes = codes_for(wire, count, zero_free, 0);
        std::vector<std::byte> const good = bytes_of(wire, codes, zero_free);
        std::vector<std::int8_t> back(codes.size());
        for (std::size_t bit = static_cast<std::size_t>(count) * bits; bit < 8 * good.size(); ++bit) {
          std::vector<std::byte> bad = good;
          bad[bit / 8] |= std::byte{1} << (bit % 8);
          ASSERT_TRUE(wire.unpack(bad.data(), count, back.data(), zero_free))
              << bits << " bits, count " << count;
        }
        ASSERT_FALSE(wire.unpack(good.data(), count, back.data(), zero_free));
      }
  }
}

// Whatever bytes arrive: either they are refused, or packing the codes gives them back.
TEST(PackedWire, bytes_that_are_accepted_are_those_of_their_codes) {
  std::uint32_t state = 12345;
  for (std::uint32_t bits = 1; bits <= 7; ++bits) {
    packed<> const wire(bits);
    for (int trial = 0; trial < 2000; ++trial)
      for (bool zero_free : {false, true}) {
        int const count = 1 + trial % 13;
        std::vector<std::byte> bytes(wire.bytes(static_cast<std::uint64_t>(count)));
        for (std::byte& b : bytes) {
          state = state * 1664525U + 1013904223U;
          b = static_cast<std::byte>(state >> 24);
        }
        std::vector<std::int8_t> codes(static_cast<std::size_t>(count));
        if (!wire.unpack(bytes.data(), count, codes.data(), zero_free)) {
          ASSERT_EQ(bytes_of(wire, codes, zero_free), bytes) << bits << " bits, count " << count;
        }
      }
  }
}

// 8 bits without zero hold 127 levels only: the two patterns of magnitude 128 come back as -128, out of every
// range.
TEST(PackedWire, the_magnitude_128_of_8_bits_without_zero_is_out_of_range) {
  for (std::byte pattern : {std::byte{0x7f}, std::byte{0xff}}) {
    std::int8_t code_type = 0;
    bool const bad = packed<8>{}.unpack(&pattern, 1, &code_type, true);
    EXPECT_TRUE(bad || code_type == -128);
  }
}

TEST(PackedWire, bits_outside_1_to_8_are_refused_with_a_wire_that_holds_more) {
  for (std::uint32_t bits : {0U, 9U, 16U, 256U, 257U}) {
    try {
      packed<> const wire(bits);
      ADD_FAILURE() << bits;
    } catch (gq::configuration_error const& e) {
      EXPECT_THAT(e.what(),
                  ::testing::HasSubstr(std::to_string(bits) + " bits per code; use 1 to 8, or wire::int16"));
    }
  }
}

}  // namespace
}  // namespace globalq_test
