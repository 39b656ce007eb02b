// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every wire format keeps to. A new format joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, wire_format_suite, formats);`
///
/// `formats` has `wire`, the type under test, and `all()`, the formats to test with.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "globalq/core/concepts.hpp"

namespace globalq_test {

namespace gq = globalq;

/// 0 to 70 and sizes around a tile.
inline std::vector<int> row_counts() {
  std::vector<int> list;
  for (int n = 0; n <= 70; ++n) list.push_back(n);
  for (int n : {255, 256, 257}) list.push_back(n);
  return list;
}

/// n codes within the limit: both ends, their neighbors and everything between, zero only where it is
/// allowed.
template <class Wire>
std::vector<typename Wire::code_type> codes_for(Wire const& wire, int n, bool zero_free, int start) {
  using code_type = typename Wire::code_type;
  std::int64_t const limit = wire.largest_code(zero_free);
  std::vector<code_type> list;
  for (std::int64_t i = 0; list.size() < static_cast<std::size_t>(n); ++i) {
    std::int64_t const k = i + start;
    std::int64_t const step = limit > 300 ? limit / 100 : 1, span = 2 * limit + 1;
    std::int64_t const code = k % 5 == 4 ? (k % 2 == 0 ? limit : -limit) : (k * step) % span - limit;
    if (!(zero_free && code == 0)) list.push_back(static_cast<code_type>(code));
  }
  return list;
}

template <class Formats>
class wire_format_suite : public ::testing::Test {
 public:
  /// Whether there is a code at all.
  template <class Wire>
  static bool usable(Wire const& wire, bool zero_free) {
    return !(zero_free && wire.largest_code(true) == 0);
  }
};

TYPED_TEST_SUITE_P(wire_format_suite);

TYPED_TEST_P(wire_format_suite, is_a_wire_format) { static_assert(gq::WireFormat<typename TypeParam::wire>); }

TYPED_TEST_P(wire_format_suite, codes_come_back_and_exactly_bytes_are_written) {
  using code_type = typename TypeParam::wire::code_type;
  for (auto const& wire : TypeParam::all())
    for (bool zero_free : {false, true})
      for (int n : row_counts())
        for (int start = 0; start < 3; ++start) {
          std::vector<code_type> const codes = codes_for(wire, n, zero_free, start);
          std::size_t const size = wire.bytes(static_cast<std::uint64_t>(n));
          std::vector<std::byte> bytes(size + 8, std::byte{0xa5});
          wire.pack(codes.data(), n, bytes.data(), zero_free);
          for (std::size_t i = size; i < bytes.size(); ++i)
            ASSERT_EQ(bytes[i], std::byte{0xa5}) << "count " << n;
          std::vector<code_type> back(static_cast<std::size_t>(n) + 1, code_type{77});
          ASSERT_FALSE(wire.unpack(bytes.data(), n, back.data(), zero_free)) << "count " << n;
          ASSERT_EQ(back.back(), code_type{77}) << "written beyond the end, count " << n;
          back.pop_back();
          ASSERT_EQ(back, codes) << "count " << n << " zero_free " << zero_free;
        }
}

TYPED_TEST_P(wire_format_suite, every_code_up_to_the_largest_comes_back) {
  using code_type = typename TypeParam::wire::code_type;
  for (auto const& wire : TypeParam::all())
    for (bool zero_free : {false, true}) {
      std::int64_t const limit = wire.largest_code(zero_free), step = limit > 40000 ? limit / 40000 : 1;
      for (std::int64_t code = -limit; code <= limit; code += step) {
        if (zero_free && code == 0) continue;
        code_type const in[2] = {static_cast<code_type>(code), static_cast<code_type>(limit)};
        code_type out[2] = {};
        std::byte bytes[8] = {};
        wire.pack(in, 2, bytes, zero_free);
        ASSERT_FALSE(wire.unpack(bytes, 2, out, zero_free)) << code;
        ASSERT_EQ(out[0], in[0]);
        ASSERT_EQ(out[1], in[1]);
      }
    }
}

TYPED_TEST_P(wire_format_suite, bytes_are_the_bits_rounded_up) {
  for (auto const& wire : TypeParam::all()) {
    auto const bits = static_cast<std::uint64_t>(wire.bits());
    for (std::uint64_t n = 0; n <= 300; ++n) ASSERT_EQ(wire.bytes(n), (n * bits + 7) / 8) << n;
    // the length of the longest vector does not overflow
    ASSERT_EQ(wire.bytes(std::uint64_t{1} << 48), (std::uint64_t{1} << 45) * bits);
  }
}

TYPED_TEST_P(wire_format_suite, pieces_of_a_multiple_of_8_codes_packed_apart_make_the_bytes_of_the_whole) {
  using code_type = typename TypeParam::wire::code_type;
  for (auto const& wire : TypeParam::all()) {
    std::vector<code_type> const codes = codes_for(wire, 256, false, 1);
    std::vector<std::byte> whole(wire.bytes(256)), pieces(wire.bytes(256));
    wire.pack(codes.data(), 256, whole.data(), false);
    for (int first = 0, size = 8; first < 256; first += size, size = std::min(2 * size, 256 - first))
      wire.pack(codes.data() + first, size, pieces.data() + wire.bytes(static_cast<std::uint64_t>(first)),
                false);
    ASSERT_EQ(whole, pieces);
  }
}

REGISTER_TYPED_TEST_SUITE_P(wire_format_suite, is_a_wire_format,
                            codes_come_back_and_exactly_bytes_are_written,
                            every_code_up_to_the_largest_comes_back, bytes_are_the_bits_rounded_up,
                            pieces_of_a_multiple_of_8_codes_packed_apart_make_the_bytes_of_the_whole);

}  // namespace globalq_test
