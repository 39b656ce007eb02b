// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: what every block code keeps to. A new one joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, block_code_suite, codes);`
///
/// `codes` is the type under test. decoding.hpp has what must hold for any bytes; the fuzzers use it too.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "globalq/wire/block_code.hpp"
#include "tests/wire/decoding.hpp"

namespace globalq_test {

namespace gq = globalq;

/// Kinds of blocks that the codes are made for, and others.
enum class block_kind { zeros, ones, one_hot, sparse, normal, flat, ends };
inline constexpr block_kind block_kinds[] = {block_kind::zeros,  block_kind::ones,   block_kind::one_hot,
                                             block_kind::sparse, block_kind::normal, block_kind::flat,
                                             block_kind::ends};

/// count codes of magnitude up to max_code.
template <class Int>
std::vector<Int> block_of(block_kind kind, int count, std::uint32_t max_code, std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<Int> codes(static_cast<std::size_t>(count), Int{0});
  auto const m = static_cast<std::int32_t>(max_code);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint32_t const word = draw();
    std::int32_t code = 0;
    switch (kind) {
      case block_kind::zeros:
        break;
      case block_kind::ones:
        code = 1;
        break;
      case block_kind::one_hot:
        code = i == codes.size() * 2 / 3 ? m : 0;
        break;
      case block_kind::sparse:
        code = word % 50 == 0 ? 1 + static_cast<std::int32_t>((word >> 8) % 3) : 0;
        break;
      case block_kind::normal: {  // four uniforms around zero, a deviation of a sixth of the range
        std::int32_t sum = -2 * 255;
        for (int k = 0; k < 4; ++k) sum += static_cast<std::int32_t>((word >> (8 * k)) & 255U);
        code = (sum < 0 ? -sum : sum) * m / 510;
        break;
      }
      case block_kind::flat:
        code = static_cast<std::int32_t>((word >> 1) % (max_code + 1));
        break;
      case block_kind::ends:
        code = i == 0 || i + 1 == codes.size() ? m : 0;
        break;
    }
    if (code > m) code = m;
    codes[i] = static_cast<Int>((word & 1) != 0 ? -code : code);
  }
  return codes;
}

/// A table for these codes.
template <class Code>
typename Code::table table_for(std::vector<typename Code::code_type> const& codes, std::uint32_t max_code) {
  std::vector<std::uint64_t> counts(2 * std::size_t{max_code} + 1, 0);
  for (auto const c : codes) ++counts[static_cast<std::size_t>(c + static_cast<std::int32_t>(max_code))];
  return Code{}.make_table(counts, max_code);
}

/// The bytes of a block, given all the room it may want.
template <class Code>
std::vector<std::byte> encoded(Code code, typename Code::table const& table,
                               std::vector<typename Code::code_type> const& codes) {
  std::vector<std::byte> out(4 * codes.size() + 64);
  std::size_t const size =
      code.encode(table, codes.data(), static_cast<int>(codes.size()), out.data(), out.size());
  EXPECT_NE(size, gq::wire::too_long);
  if (size == gq::wire::too_long) return {};
  out.resize(size);
  return out;
}

template <class Code>
class block_code_suite : public ::testing::Test {
 public:
  static std::vector<std::uint32_t> max_codes() {
    std::vector<std::uint32_t> list = {1, 3, 7, 15, 40, 127};
    for (std::uint32_t m : {500U, 511U, 2000U, 32767U})
      if (m <= Code::largest_code()) list.push_back(m);
    return list;
  }
  /// f(codes, table, max_code, what)
  template <class F>
  static void for_each_block(std::vector<int> const& counts, F const& f) {
    for (std::uint32_t max_code : max_codes())
      for (int count : counts)
        for (block_kind kind : block_kinds) {
          auto const codes = block_of<typename Code::code_type>(kind, count, max_code,
                                                                static_cast<std::uint32_t>(count) + max_code);
          f(codes, table_for<Code>(codes, max_code), max_code,
            "kind " + std::to_string(static_cast<int>(kind)) + " count " + std::to_string(count) + " max " +
                std::to_string(max_code));
          if (::testing::Test::HasFatalFailure()) return;
        }
  }
};

TYPED_TEST_SUITE_P(block_code_suite);

TYPED_TEST_P(block_code_suite, is_a_block_code) {
  static_assert(gq::wire::BlockCode<TypeParam>);
  EXPECT_GE(TypeParam::identifier(), 64);
}

TYPED_TEST_P(block_code_suite, codes_come_back_and_nothing_else_is_written) {
  using code_type = typename TypeParam::code_type;
  TypeParam const code;
  this->for_each_block(
      {0, 1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 1027, 4093, 4095, 4096},
      [&](auto const& codes, auto const& table, std::uint32_t max_code, std::string const& what) {
        auto const count = static_cast<int>(codes.size());
        auto const bytes = encoded(code, table, codes);
        // in exactly the room it needs
        std::vector<std::byte> out(bytes.size() + 16, std::byte{0xa5});
        ASSERT_EQ(code.encode(table, codes.data(), count, out.data(), bytes.size()), bytes.size()) << what;
        for (std::size_t i = bytes.size(); i < out.size(); ++i) ASSERT_EQ(out[i], std::byte{0xa5}) << what;
        // in less
        if (!bytes.empty()) {
          std::fill(out.begin(), out.end(), std::byte{0xa5});
          ASSERT_EQ(code.encode(table, codes.data(), count, out.data(), bytes.size() - 1),
                    gq::wire::too_long);
          for (std::size_t i = bytes.size() - 1; i < out.size(); ++i)
            ASSERT_EQ(out[i], std::byte{0xa5}) << what;
        }
        std::vector<code_type> back(codes.size() + 64, code_type{55});
        ASSERT_FALSE(code.decode(table, bytes, count, max_code, back.data())) << what;
        for (std::size_t i = codes.size(); i < back.size(); ++i) ASSERT_EQ(back[i], code_type{55}) << what;
        back.resize(codes.size());
        ASSERT_EQ(back, codes) << what;
      });
}

TYPED_TEST_P(block_code_suite, tables_come_back) {
  TypeParam const code;
  this->for_each_block({0, 1, 100, 4096}, [&](auto const& codes, auto const& table, std::uint32_t max_code,
                                              std::string const& what) {
    std::vector<std::byte> bytes(code.table_bytes(max_code));
    code.write_table(table, max_code, bytes.data());
    typename TypeParam::table back{};
    ASSERT_FALSE(code.read_table(bytes.data(), max_code, back)) << what;
    ASSERT_EQ(encoded(code, table, codes), encoded(code, back, codes)) << what;
  });
}

TYPED_TEST_P(block_code_suite, codes_beyond_the_largest_are_refused) {
  using code_type = typename TypeParam::code_type;
  TypeParam const code;
  for (code_type beyond : {code_type{8}, code_type{-8}, code_type{127}, code_type{-127}}) {
    std::vector<code_type> codes = block_of<code_type>(block_kind::normal, 200, 7, 1);
    codes[77] = beyond;
    auto const table = table_for<TypeParam>(codes, 127);
    auto const bytes = encoded(code, table, codes);
    std::vector<code_type> back(200);
    EXPECT_FALSE(code.decode(table, bytes, 200, 127, back.data()));
    if (std::is_empty_v<typename TypeParam::table>) {  // else the table has no word for them
      EXPECT_TRUE(code.decode(table, bytes, 200, 7, back.data())) << static_cast<int>(beyond);
    }
  }
}

// Every one of these bytes comes from another process.
TYPED_TEST_P(block_code_suite, every_truncation_and_every_flipped_bit_is_an_error_or_a_valid_block) {
  TypeParam const code;
  this->for_each_block({1, 9, 66, 1024}, [&](auto const& codes, auto const& table, std::uint32_t max_code,
                                             std::string const& what) {
    auto const count = static_cast<int>(codes.size());
    auto const bytes = encoded(code, table, codes);
    if (bytes.size() > 700 && max_code > 7) return;  // long enough already
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // memory of exactly this size: the sanitizer sees what is read behind it
      std::vector<std::byte> const cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_EQ(decoding_fault(code, table, cut, count, max_code), "") << what << " cut to " << size;
    }
    std::vector<std::byte> more = bytes;
    more.push_back(std::byte{0});
    ASSERT_EQ(decoding_fault(code, table, more, count, max_code), "") << what;
    more.pop_back();
    std::size_t const step = bytes.size() > 200 ? 3 : 1;
    for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += step) {
      more[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_EQ(decoding_fault(code, table, more, count, max_code), "") << what << " bit " << bit;
      more[bit / 8] = bytes[bit / 8];
    }
  });
}

TYPED_TEST_P(block_code_suite, bytes_behind_a_block_are_an_error) {
  TypeParam const code;
  this->for_each_block({0, 1, 100, 4096}, [&](auto const& codes, auto const& table, std::uint32_t max_code,
                                              std::string const& what) {
    auto bytes = encoded(code, table, codes);
    std::vector<typename TypeParam::code_type> back(codes.size());
    for (int more = 0; more < 3; ++more) {
      bytes.push_back(std::byte{0});
      ASSERT_TRUE(code.decode(table, bytes, static_cast<int>(codes.size()), max_code, back.data())) << what;
    }
  });
}

TYPED_TEST_P(block_code_suite, random_bytes_are_an_error_or_a_valid_block) {
  TypeParam const code;
  std::mt19937 draw(7);
  for (int round = 0; round < 3000; ++round) {
    auto const count = static_cast<int>(draw() % (round % 10 == 0 ? 4097 : 40));
    std::uint32_t const max_code = 1 + draw() % (round % 2 == 0 ? 7 : TypeParam::largest_code());
    auto const table = table_for<TypeParam>(
        block_of<typename TypeParam::code_type>(block_kind::normal, 500, max_code, draw()), max_code);
    std::vector<std::byte> bytes(draw() % (static_cast<std::size_t>(count) + 12));
    for (std::byte& b : bytes) b = static_cast<std::byte>(draw());
    if (!bytes.empty() && round % 3 != 0)
      bytes[0] &= static_cast<std::byte>(round % 3 == 1 ? 3 : 131);  // a form that exists
    ASSERT_EQ(decoding_fault(code, table, bytes, count, max_code), "") << "round " << round;
  }
}

REGISTER_TYPED_TEST_SUITE_P(block_code_suite, is_a_block_code, codes_come_back_and_nothing_else_is_written,
                            tables_come_back, codes_beyond_the_largest_are_refused,
                            every_truncation_and_every_flipped_bit_is_an_error_or_a_valid_block,
                            bytes_behind_a_block_are_an_error, random_bytes_are_an_error_or_a_valid_block);

/// Bytes as numbers, to compare with golden ones.
inline std::vector<int> numbers(std::vector<std::byte> const& bytes) {
  std::vector<int> list;
  for (std::byte b : bytes) list.push_back(std::to_integer<int>(b));
  return list;
}

}  // namespace globalq_test
