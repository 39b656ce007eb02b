// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Bodies of variable length: any number of codes, in parallel, never longer than fixed width, and from any bytes.

#include "globalq/wire/coded.hpp"

#include <gtest/gtest.h>

#include "globalq/kernel/executor.hpp"
#include "globalq/wire/elias.hpp"
#include "globalq/wire/huffman.hpp"
#include "globalq/wire/sparse.hpp"
#include "tests/support/allocations.hpp"
#include "tests/wire/code_suite.hpp"

namespace globalq_test {
namespace {

gq::kernel::host_executor serial() { return gq::kernel::host_executor(Kokkos::Serial()); }
gq::kernel::host_executor all_threads() {
  return gq::kernel::host_executor(Kokkos::DefaultHostExecutionSpace());
}

/// Codes whose blocks differ: nearly empty, normal, flat (which falls back to fixed width), and so on.
template <class Int>
std::vector<Int> mixed(std::uint64_t count, std::uint32_t max_code) {
  std::vector<Int> codes;
  for (std::uint32_t b = 0; codes.size() < count; ++b) {
    auto const block = block_of<Int>(block_kinds[b % 7], 4096, max_code, b);
    codes.insert(codes.end(), block.begin(), block.end());
  }
  codes.resize(count);
  return codes;
}

template <class Code>
std::vector<std::byte> body_of(gq::wire::coded<Code>& body,
                               std::vector<typename Code::code_type> const& codes,
                               gq::kernel::host_executor const& on = serial()) {
  std::vector<std::byte> out(body.capacity(codes.size()));
  out.resize(body.encode(on, codes.data(), codes.size(), out));
  return out;
}

template <class Code>
class coded_body : public ::testing::Test {};
using codes_under_test = ::testing::Types<gq::wire::elias<>, gq::wire::huffman<>, gq::wire::sparse<>,
                                          gq::wire::elias<std::int16_t>, gq::wire::huffman<std::int16_t>,
                                          gq::wire::sparse<std::int16_t>>;
TYPED_TEST_SUITE(coded_body, codes_under_test);

TYPED_TEST(coded_body, codes_come_back_from_at_most_capacity_bytes_whatever_the_threads) {
  using code_type = typename TypeParam::code_type;
  for (std::uint32_t max_code : {1U, 7U, 127U, TypeParam::largest_code()})
    for (std::uint64_t count : {0U, 1U, 5U, 4095U, 4096U, 4097U, 8192U, 70001U}) {
      gq::wire::coded<TypeParam> one(TypeParam{}, max_code), two(TypeParam{}, max_code);
      auto const codes = mixed<code_type>(count, max_code);
      auto const bytes = body_of(one, codes);
      ASSERT_LE(bytes.size(), one.capacity(count));
      ASSERT_EQ(bytes, body_of(two, codes, all_threads())) << "the bytes depend on the threads";
      for (auto const& on : {serial(), all_threads()}) {
        std::vector<code_type> back(count + 8, code_type{99});
        ASSERT_FALSE(two.decode(on, bytes, count, back.data())) << count << " max " << max_code;
        for (std::size_t i = 0; i < 8; ++i) ASSERT_EQ(back[count + i], code_type{99});
        back.resize(count);
        ASSERT_EQ(back, codes) << count << " max " << max_code;
      }
    }
}

TYPED_TEST(coded_body, more_blocks_than_are_put_together_at_a_time_come_back) {
  using code_type = typename TypeParam::code_type;
  gq::wire::coded<TypeParam> body(TypeParam{}, 7);
  std::vector<code_type> codes(std::size_t{1026} * 4096 + 17, code_type{0});
  for (std::size_t i = 0; i < codes.size(); i += 1 + i % 97)
    codes[i] = static_cast<code_type>(static_cast<int>(i % 15) - 7);
  auto const bytes = body_of(body, codes, all_threads());
  std::vector<code_type> back(codes.size(), code_type{99});
  ASSERT_FALSE(body.decode(all_threads(), bytes, codes.size(), back.data()));
  EXPECT_TRUE(back == codes);
}

TYPED_TEST(coded_body, capacity_is_fixed_width_and_two_bytes_a_block_and_the_table) {
  bool const wide = sizeof(typename TypeParam::code_type) == 2;
  for (std::uint32_t max_code : {1U, 3U, 7U, 127U}) {
    gq::wire::coded<TypeParam> const body(TypeParam{}, max_code);
    std::size_t const table = TypeParam{}.table_bytes(max_code);
    std::size_t const bits = wide ? 16 : max_code == 1 ? 2 : max_code == 3 ? 3 : max_code == 7 ? 4 : 8;
    EXPECT_EQ(body.capacity(0), 0U);
    EXPECT_EQ(body.capacity(1), table + 2 + (bits + 7) / 8);
    EXPECT_EQ(body.capacity(4097), table + 4 + 512 * bits + (bits + 7) / 8);
  }
}

TYPED_TEST(coded_body, blocks_that_no_code_shortens_are_sent_in_fixed_width) {
  using code_type = typename TypeParam::code_type;
  std::uint32_t const most = sizeof(code_type) == 1 ? 127 : TypeParam::largest_code();
  gq::wire::coded<TypeParam> body(TypeParam{}, most);
  std::vector<code_type> codes(3 * 4096);
  std::mt19937 draw(5);
  for (code_type& c :
       codes) {  // every pattern alike: nothing to be had, except where integers hold more than codes
    auto const m = static_cast<code_type>(draw() % (most + 1));
    c = draw() % 2 == 0 ? m : static_cast<code_type>(-m);
  }
  auto const bytes = body_of(body, codes);
  if (sizeof(code_type) == 1) {
    EXPECT_GE(bytes.size(), codes.size() * 127 / 128);
  }
  EXPECT_LE(bytes.size(), body.capacity(codes.size()));
}

TYPED_TEST(coded_body, every_truncation_and_every_flipped_bit_is_an_error_or_valid_codes) {
  using code_type = typename TypeParam::code_type;
  constexpr std::uint64_t count = 2 * 4096 + 50;
  constexpr std::uint32_t max_code = 3;
  gq::wire::coded<TypeParam> body(TypeParam{}, max_code);
  std::vector<code_type> codes(count, code_type{0});  // few bytes, so that all bits can be flipped
  for (std::size_t i = 5; i < count; i += 131) codes[i] = static_cast<code_type>(static_cast<int>(i % 7) - 3);
  auto const bytes = body_of(body, codes);
  ASSERT_LT(bytes.size(), 1500U);
  auto const on = serial();
  std::vector<code_type> back(count + 1);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    std::vector<std::byte> const cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_TRUE(body.decode(on, cut, count, back.data())) << size;
  }
  std::vector<std::byte> flipped = bytes;
  std::size_t const step = bytes.size() > 600 ? 3 : 1;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += step) {
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    back.assign(count + 1, code_type{99});
    bool const bad = body.decode(on, flipped, count, back.data());
    ASSERT_EQ(back[count], code_type{99});
    if (!bad) {
      ASSERT_NE((std::vector<code_type>(back.begin(), back.end() - 1)), codes)
          << "two bodies for the same codes, bit " << bit;
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_LE(back[i] < 0 ? -back[i] : back[i], static_cast<int>(max_code));
    }
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  flipped.push_back(std::byte{0});
  EXPECT_TRUE(body.decode(on, flipped, count, back.data()));
  EXPECT_TRUE(body.decode(on, bytes, count + 8192, std::vector<code_type>(count + 8192).data()));
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TYPED_TEST(coded_body, nothing_is_allocated_after_the_first_call_of_a_length) {
  using code_type = typename TypeParam::code_type;
  gq::wire::coded<TypeParam> body(TypeParam{}, 7);
  auto const codes = mixed<code_type>(50000, 7);
  std::vector<std::byte> out(body.capacity(codes.size()));
  std::vector<code_type> back(codes.size());
  auto const on = serial();
  std::size_t size = body.encode(on, codes.data(), codes.size(), out);
  ASSERT_FALSE(body.decode(on, std::span(out.data(), size), codes.size(), back.data()));
  auto const before = support::allocations.load();
  size = body.encode(on, codes.data(), codes.size(), out);
  bool const bad = body.decode(on, std::span(out.data(), size), codes.size(), back.data());
  EXPECT_EQ(support::allocations.load() - before, 0U);
  EXPECT_FALSE(bad);
}
#endif

TYPED_TEST(coded_body, levels_without_zero_save_a_bit_of_fixed_width_and_have_no_zero) {
  using code_type = typename TypeParam::code_type;
  gq::wire::coded<TypeParam> free(TypeParam{}, 4, true), with(TypeParam{}, 4);
  if (sizeof(code_type) == 1) {
    EXPECT_LT(free.capacity(4096), with.capacity(4096));
  }
  std::vector<code_type> codes(5000);
  std::mt19937 draw(2);
  for (code_type& c : codes)
    c = static_cast<code_type>((1 + static_cast<int>(draw() % 4)) * (draw() % 2 == 0 ? 1 : -1));
  auto const bytes = body_of(free, codes);
  std::vector<code_type> back(codes.size());
  ASSERT_FALSE(free.decode(serial(), bytes, codes.size(), back.data()));
  EXPECT_EQ(back, codes);
  std::fill(codes.begin(), codes.end(), code_type{1});
  codes[4999] = 0;
  auto const zero = body_of(with, codes);
  if (sizeof(code_type) == 2 || zero.size() < free.capacity(codes.size())) {
    EXPECT_TRUE(free.decode(serial(), zero, codes.size(), back.data()));
  }
}

// Other bytes are another format: bump its version.
TEST(CodedBody, golden_bytes) {
  using list = std::vector<int>;
  gq::wire::coded<gq::wire::sparse<>> sparse({}, 1);
  EXPECT_EQ(numbers(body_of<gq::wire::sparse<>>(sparse, {})), list{});
  // two blocks: no non-zeros, 1 byte; one code, where fixed width (one byte) is not longer
  std::vector<std::int8_t> codes(4097, 0);
  codes[4096] = -1;
  EXPECT_EQ(numbers(body_of<gq::wire::sparse<>>(sparse, codes)), (list{1, 0, 0, 0, 0, 0b11}));
  // a table of lengths in front: 1 for -1, 2 for 0 and 1
  gq::wire::coded<gq::wire::huffman<>> huffman({}, 1);
  EXPECT_EQ(numbers(body_of<gq::wire::huffman<>>(huffman, {-1, -1, -1, -1, 0, 1, -1, -1, -1})),
            (list{0x21, 0x02, 2, 0, 0b00001011, 0b00000000}));
}

TEST(CodedBody, what_does_not_fit_is_refused_with_numbers) {
  EXPECT_THROW(gq::wire::coded<gq::wire::elias<>>({}, 0), gq::configuration_error);
  EXPECT_THROW(gq::wire::coded<gq::wire::elias<>>({}, 128), gq::configuration_error);
  EXPECT_THROW(gq::wire::coded<gq::wire::huffman<std::int16_t>>({}, 512), gq::configuration_error);
  gq::wire::coded<gq::wire::elias<>> body({}, 7);
  std::vector<std::int8_t> const codes(100);
  std::vector<std::byte> out(body.capacity(100) - 1);
  EXPECT_THROW(body.encode(serial(), codes.data(), 100, out), gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
