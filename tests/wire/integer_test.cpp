// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Integer wires: the suite, golden bytes, and codes out of range, which only the kernels can see.

#include "globalq/wire/integer.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "globalq/kernel/loops.hpp"
#include "tests/wire/suite.hpp"

namespace globalq_test {

template <class Wire>
struct integer_formats {
  using wire = Wire;
  static std::vector<wire> all() { return {wire{}}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(int8, wire_format_suite, integer_formats<gq::wire::int8>);
INSTANTIATE_TYPED_TEST_SUITE_P(int16, wire_format_suite, integer_formats<gq::wire::int16>);
INSTANTIATE_TYPED_TEST_SUITE_P(int32, wire_format_suite, integer_formats<gq::wire::int32>);

namespace {

template <class Wire>
std::vector<int> packed_bytes(std::vector<typename Wire::code_type> const& codes) {
  std::vector<std::byte> bytes(Wire::bytes(codes.size()));
  Wire::pack(codes.data(), static_cast<int>(codes.size()), bytes.data(), false);
  std::vector<int> numbers;
  for (std::byte b : bytes) numbers.push_back(std::to_integer<int>(b));
  return numbers;
}

// Other bytes are another format: bump its version.
TEST(IntegerWire, golden_bytes_are_little_endian_twos_complement) {
  EXPECT_EQ(packed_bytes<gq::wire::int8>({0, 1, -1, 127, -127}), (std::vector<int>{0, 1, 255, 127, 129}));
  EXPECT_EQ(packed_bytes<gq::wire::int16>({1, -2, 32767}), (std::vector<int>{1, 0, 254, 255, 255, 127}));
  EXPECT_EQ(packed_bytes<gq::wire::int32>({1, -2}), (std::vector<int>{1, 0, 0, 0, 254, 255, 255, 255}));
}

TEST(IntegerWire, identifiers_and_largest_codes_are_those_of_the_format) {
  EXPECT_EQ(gq::wire::int8::identifier(), 1);
  EXPECT_EQ(gq::wire::int16::identifier(), 2);
  EXPECT_EQ(gq::wire::int32::identifier(), 3);
  EXPECT_EQ(gq::wire::int8::largest_code(false), 127U);
  EXPECT_EQ(gq::wire::int16::largest_code(true), 32767U);
  EXPECT_EQ(gq::wire::int32::largest_code(false), 2147483647U);
}

template <class Int>
void expect_range() {
  constexpr int count = 33;
  Int const most = std::numeric_limits<Int>::max(), least = std::numeric_limits<Int>::min();
  for (int at : {0, 1, 15, 16, 31, 32}) {
    std::vector<Int> codes(count, Int{7});
    auto const with = [&](Int code, std::uint32_t limit, bool zero_free) {
      codes[static_cast<std::size_t>(at)] = code;
      return gq::kernel::in_range(codes.data(), count, limit, zero_free);
    };
    EXPECT_TRUE(with(7, 7, false));
    EXPECT_TRUE(with(-7, 7, false));
    EXPECT_TRUE(with(0, 7, false));
    EXPECT_FALSE(with(8, 7, false));
    EXPECT_FALSE(with(-8, 7, false));
    EXPECT_FALSE(with(0, 7, true)) << "levels without zero have no code 0";
    EXPECT_FALSE(with(most, static_cast<std::uint32_t>(most) - 1, false));
    EXPECT_TRUE(with(most, static_cast<std::uint32_t>(most), false));
    EXPECT_FALSE(with(least, static_cast<std::uint32_t>(most), false))
        << "the one number without an opposite";
  }
  EXPECT_TRUE(gq::kernel::in_range(static_cast<Int const*>(nullptr), 0, 0, true));
}

TEST(CodesInRange, one_code_beyond_the_limit_is_found_at_any_place) {
  expect_range<std::int8_t>();
  expect_range<std::int16_t>();
  expect_range<std::int32_t>();
}

// What the concept refuses: no code type, unsigned codes, an unpack that cannot complain.
struct no_code_type {
  std::uint32_t largest_code(bool) const { return 1; }
};
struct unsigned_codes {
  using code_type = std::uint8_t;
  std::uint32_t largest_code(bool) const { return 1; }
  std::uint64_t bytes(std::uint64_t n) const { return n; }
  std::uint8_t identifier() const { return 99; }
  void pack(code_type const*, int, std::byte*, bool) const {}
  bool unpack(std::byte const*, int, code_type*, bool) const { return false; }
};
struct silent_unpack {
  using code_type = std::int8_t;
  std::uint32_t largest_code(bool) const { return 1; }
  std::uint64_t bytes(std::uint64_t n) const { return n; }
  std::uint8_t identifier() const { return 99; }
  void pack(code_type const*, int, std::byte*, bool) const {}
  void unpack(std::byte const*, int, code_type*, bool) const {}
};
static_assert(!gq::WireFormat<no_code_type> && !gq::WireFormat<unsigned_codes> &&
              !gq::WireFormat<silent_unpack>);
static_assert(!gq::WireFormat<int>);

}  // namespace
}  // namespace globalq_test
