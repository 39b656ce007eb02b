// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Sparse blocks: the suite, golden bytes, and compaction with and without vectors.

#include "globalq/wire/sparse.hpp"

#include <gtest/gtest.h>

#include "tests/wire/code_suite.hpp"

namespace globalq_test {

INSTANTIATE_TYPED_TEST_SUITE_P(sparse, block_code_suite, gq::wire::sparse<>);
INSTANTIATE_TYPED_TEST_SUITE_P(sparse16, block_code_suite, gq::wire::sparse<std::int16_t>);

namespace {

template <class Int>
std::vector<int> sparse_bytes(std::vector<Int> const& codes) {
  return numbers(encoded(gq::wire::sparse<Int>{}, {}, codes));
}

// Other bytes are another format: bump its version.
TEST(Sparse, golden_bytes) {
  using list = std::vector<int>;
  EXPECT_EQ(sparse_bytes<std::int8_t>({}), list{0});
  EXPECT_EQ(sparse_bytes<std::int8_t>({0, 0, 0}), list{0});
  // a bit for each code: 1 bit a sign; 2 bits up to 2; 3 bits up to 4; 8 bits up to 127
  EXPECT_EQ(sparse_bytes<std::int8_t>({1, 0, -1, -1}), (list{1, 0b1101, 0b110}));
  EXPECT_EQ(sparse_bytes<std::int8_t>({1, 0, -1, 2}), (list{2, 0b1101, 0b011000}));
  EXPECT_EQ(sparse_bytes<std::int8_t>({0, -4, 3}), (list{3, 0b110, 0b010111}));
  EXPECT_EQ(sparse_bytes<std::int8_t>({-127, 127}), (list{8, 0b11, 254, 126}));
  EXPECT_EQ(sparse_bytes<std::int16_t>({-127, 127}), (list{8, 0b11, 254, 126}));
  EXPECT_EQ(sparse_bytes<std::int16_t>({-128, 0, 1}), (list{16, 0b101, 128, 255, 1, 0}));
  // positions of 12 bits
  std::vector<std::int8_t> codes(4096, 0);
  codes[4095] = -1;
  EXPECT_EQ(sparse_bytes(codes), (list{129, 0, 0, 0xff, 0x0f, 1}));
  codes[0x123] = 2;
  EXPECT_EQ(sparse_bytes(codes), (list{130, 1, 0, 0x23, 0xf1, 0xff, 0b1001}));
}

TEST(Sparse, the_shorter_of_positions_and_bits_is_taken) {
  std::vector<std::int8_t> codes(4096, 0);
  for (int n = 1; n <= 4096; ++n) {
    codes[static_cast<std::size_t>(n * 1237 % 4096)] = 1;  // 1237 is odd: all different
    std::size_t const positions = 3 + static_cast<std::size_t>((3 * n + 1) / 2), bitmap = 1 + 512;
    ASSERT_EQ(sparse_bytes(codes).size(), std::min(positions, bitmap) + static_cast<std::size_t>((n + 7) / 8))
        << n;
  }
}

#if GLOBALQ_AVX512 && defined(__AVX512VBMI2__)
template <class Int>
void expect_twins() {
  using portable = gq::wire::detail::portable_compaction;
  using vectors = gq::wire::detail::avx512_compaction;
  constexpr std::size_t slack = gq::wire::detail::compact_slack;
  for (int count : {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 4095, 4096})
    for (block_kind kind : block_kinds) {
      auto const codes = block_of<Int>(kind, count, 100, 5);
      std::vector<std::uint16_t> at[2];
      std::vector<Int> values[2], back[2];
      std::vector<std::byte> bits[2];
      int n[4];
      for (int k = 0; k < 2; ++k) {
        at[k].resize(codes.size() + slack);
        values[k].resize(codes.size() + slack);
        bits[k].resize((codes.size() + 7) / 8);
        back[k].assign(codes.size() + 1, Int{9});
      }
      n[0] = portable::positions(codes.data(), count, at[0].data());
      n[1] = vectors::positions(codes.data(), count, at[1].data());
      n[2] = portable::non_zeros(codes.data(), count, values[0].data(), bits[0].data());
      n[3] = vectors::non_zeros(codes.data(), count, values[1].data(), bits[1].data());
      for (int k = 1; k < 4; ++k) ASSERT_EQ(n[0], n[k]) << count;
      for (int k = 0; k < 2; ++k) {
        at[k].resize(static_cast<std::size_t>(n[0]));
        values[k].resize(static_cast<std::size_t>(n[0]));
      }
      ASSERT_EQ(at[0], at[1]) << count;
      ASSERT_EQ(values[0], values[1]) << count;
      ASSERT_EQ(bits[0], bits[1]) << count;
      values[0].resize(values[0].size() + slack);
      portable::expand(bits[0].data(), values[0].data(), count, back[0].data());
      vectors::expand(bits[0].data(), values[0].data(), count, back[1].data());
      ASSERT_EQ(back[0], back[1]) << count;
      ASSERT_EQ(back[0].back(), Int{9});
      back[0].pop_back();
      ASSERT_EQ(back[0], codes) << count;
    }
}

TEST(Sparse, compaction_with_vectors_gives_the_results_of_its_portable_twin) {
  expect_twins<std::int8_t>();
  expect_twins<std::int16_t>();
}
#endif

}  // namespace
}  // namespace globalq_test
