// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Huffman codes: the suite, golden bytes, lengths against entropies, and tables from elsewhere.

#include "globalq/wire/huffman.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <queue>

#include "tests/wire/code_suite.hpp"

namespace globalq_test {

INSTANTIATE_TYPED_TEST_SUITE_P(huffman, block_code_suite, gq::wire::huffman<>);
INSTANTIATE_TYPED_TEST_SUITE_P(huffman16, block_code_suite, gq::wire::huffman<std::int16_t>);

namespace {

using counts_t = std::vector<std::uint64_t>;

/// Bits of all symbols in a code with these lengths.
double bits_of(counts_t const& counts, std::uint8_t const* lengths) {
  double bits = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) bits += static_cast<double>(counts[i]) * lengths[i];
  return bits;
}

double total(counts_t const& counts) {
  double sum = 0;
  for (std::uint64_t c : counts) sum += static_cast<double>(c);
  return sum;
}

double entropy(counts_t const& counts) {
  double h = 0;
  double const all = total(counts);
  for (std::uint64_t c : counts)
    if (c != 0) h -= static_cast<double>(c) * std::log2(static_cast<double>(c) / all);
  return h / all;
}

/// Bits of all symbols in the best code without a limit: the sum of all nodes that Huffman's algorithm makes.
double unlimited(counts_t const& counts) {
  std::priority_queue<double, std::vector<double>, std::greater<>> nodes;
  for (std::uint64_t c : counts)
    if (c != 0) nodes.push(static_cast<double>(c));
  if (nodes.size() == 1) return nodes.top();
  double bits = 0;
  while (nodes.size() > 1) {
    double const a = nodes.top();
    nodes.pop();
    double const b = nodes.top();
    nodes.pop();
    bits += a + b;
    nodes.push(a + b);
  }
  return bits;
}

/// Levels of -max to max with these shares, symmetric.
counts_t symmetric(std::uint32_t max_code, double zero, auto const& share) {
  counts_t counts(2 * max_code + 1);
  for (std::uint32_t l = 1; l <= max_code; ++l)
    counts[max_code - l] = counts[max_code + l] = static_cast<std::uint64_t>(std::llround(share(l) * 1e6));
  counts[max_code] = static_cast<std::uint64_t>(std::llround(zero * 1e6));
  return counts;
}

std::vector<counts_t> distributions(std::uint32_t max_code) {
  double const m = max_code;
  return {
      symmetric(max_code, 0.4, [](double l) { return std::exp2(-l) + 1e-6; }),
      symmetric(max_code, 1.0, [&](double l) { return std::exp(-8 * l * l / m / m) + 1e-6; }),
      symmetric(max_code, 0.001, [](double) { return 1.0; }),
      symmetric(max_code, 1.0, [](double l) { return l == 1 ? 1.0 : 1e-6; }),  // TernGrad and a few others
      symmetric(max_code, 1000.0, [](double l) { return 0.01 / l; }),          // nearly all zero
      symmetric(max_code, 0.01, [&](double l) { return l + 2 > m ? 1.0 : 1e-6; }),  // two large levels
  };
}

// Faghri et al., Proposition 6: H(L) + 1 bits a level, and a sign for each non-zero.
TEST(Huffman,
     a_value_takes_less_than_the_entropy_of_the_signed_code_plus_one_and_of_the_level_plus_one_and_a_sign) {
  gq::wire::huffman<std::int16_t> const code;
  for (std::uint32_t max_code : {1U, 2U, 3U, 7U, 15U, 31U, 127U, 511U})
    for (counts_t const& counts : distributions(max_code)) {
      auto const table = code.make_table(counts, max_code);
      double const mean = bits_of(counts, table.lengths) / total(counts);
      counts_t levels(max_code + 1);
      levels[0] = counts[max_code];
      for (std::uint32_t l = 1; l <= max_code; ++l) levels[l] = counts[max_code - l] + counts[max_code + l];
      double const signs = 1 - static_cast<double>(levels[0]) / total(levels);
      EXPECT_GE(mean, entropy(counts) - 1e-9);
      EXPECT_LE(mean, entropy(counts) + 1);
      EXPECT_LE(mean, entropy(levels) + 1 + signs);
      // words for levels with a sign behind them are one of the codes that the best one was chosen from
      EXPECT_LE(unlimited(counts), unlimited(levels) + signs * total(levels) + 1e-6);
    }
}

TEST(Huffman, the_limit_of_12_bits_costs_less_than_what_is_documented) {
  gq::wire::huffman<std::int16_t> const code;
  for (std::uint32_t max_code : {7U, 15U, 31U, 127U, 511U})
    for (counts_t const& counts : distributions(max_code)) {
      auto const table = code.make_table(counts, max_code);
      double const best = unlimited(counts) / total(counts),
                   mean = bits_of(counts, table.lengths) / total(counts);
      EXPECT_GE(mean, best - 1e-12);
      EXPECT_LE(mean, entropy(counts) + 1 + std::log2(1 / (1 - (2.0 * max_code + 1) / 4096)));
      if (max_code <= 127) {
        EXPECT_LE(mean, best * 1.03) << max_code;  // 251 codes of a millionth each
      }
    }
}

// Of all codes in which nothing is rarer than 1 in 610, Fibonacci numbers have the longest word: 12 bits.
TEST(Huffman, the_limit_costs_nothing_where_no_code_is_rarer_than_1_in_610) {
  gq::wire::huffman<> const code;
  auto const loss = [&](std::size_t symbols) {
    counts_t counts(127);
    std::uint64_t a = 1, b = 1;
    for (std::size_t i = 0; i < symbols; ++i) {
      counts[i] = a;
      b += a;
      std::swap(a, b);
    }
    auto const table = code.make_table(counts, 63);
    return bits_of(counts, table.lengths) - unlimited(counts);
  };
  for (std::size_t symbols = 2; symbols <= 13; ++symbols) EXPECT_EQ(loss(symbols), 0) << symbols;
  EXPECT_GT(loss(14), 0) << "the rarest of 986";
}

// By exhaustion: no complete code whose words have up to 3 bits is shorter.
TEST(Huffman, package_merge_finds_the_best_lengths_within_the_limit) {
  std::mt19937 draw(3);
  for (int round = 0; round < 200; ++round) {
    counts_t counts(5);
    for (std::uint64_t& c : counts) c = 1 + draw() % (round % 2 == 0 ? 10 : 1000);
    std::uint8_t lengths[5];
    gq::wire::detail::package_merge<5, 3> merge;
    merge(counts, lengths);
    double best = 1e30;
    for (int k = 0; k < 243; ++k) {
      std::uint8_t tried[5];
      int rest = k, kraft = 0;
      for (std::uint8_t& l : tried) {
        l = static_cast<std::uint8_t>(1 + rest % 3);
        rest /= 3;
        kraft += 8 >> l;
      }
      if (kraft <= 8) best = std::min(best, bits_of(counts, tried));
    }
    EXPECT_EQ(bits_of(counts, lengths), best);
  }
}

TEST(Huffman, large_counts_do_not_overflow) {
  gq::wire::huffman<> const code;
  counts_t const small = {1, 1U << 10, 1U << 30, 3U << 20, 0, 5, 7};
  counts_t large = small;
  for (std::uint64_t& c : large) c <<= 31;
  auto const a = code.make_table(small, 3), b = code.make_table(large, 3);
  // those below 2^-20 of the largest may be exchanged, but have words
  EXPECT_EQ(a.lengths[2], b.lengths[2]);
  EXPECT_EQ(b.lengths[4], 0);
  for (std::size_t i : {0U, 1U, 2U, 3U, 5U, 6U}) EXPECT_NE(b.lengths[i], 0);
}

// Other bytes are another format: bump its version.
TEST(Huffman, golden_bytes_of_table_and_block) {
  gq::wire::huffman<> const code;
  // codes -3 .. 3; the words are 0: 0; -1: 100; 1: 101; 2: 110; -2: 1110; -3: 11110, 3: 11111
  counts_t const counts = {1, 2, 8, 20, 8, 4, 1};
  auto const table = code.make_table(counts, 3);
  std::vector<std::byte> bytes(code.table_bytes(3));
  code.write_table(table, 3, bytes.data());
  EXPECT_EQ(numbers(bytes), (std::vector<int>{0x45, 0x13, 0x33, 0x05}));
  std::vector<std::int8_t> const codes = {0, 1, -1, 2, -2, 3, -3, 0};
  // 0 101 100 1|10 1110 11|111 11110| 0
  EXPECT_EQ(numbers(encoded(code, table, codes)), (std::vector<int>{0x59, 0xbb, 0xfe, 0x00}));

  // from 1,024 codes on four streams: three times two bytes that tell where they begin
  std::vector<std::int8_t> many(1026, 0);  // 257, 257, 257, 255 codes
  many[0] = 3;
  many[1025] = -3;
  auto const block = numbers(encoded(code, table, many));
  ASSERT_EQ(block.size(), 6U + 33 + 33 + 33 + 33);
  EXPECT_EQ((std::vector<int>(block.begin(), block.begin() + 8)),
            (std::vector<int>{33, 0, 33, 0, 33, 0, 0xf8, 0}));
  EXPECT_EQ(block[6 + 3 * 33 + 31], 0x03);  // 254 zeros, then 11110
  EXPECT_EQ(block[6 + 3 * 33 + 32], 0xc0);
}

TEST(Huffman, a_code_that_was_not_counted_makes_a_block_too_long) {
  gq::wire::huffman<> const code;
  auto const table = code.make_table(counts_t{0, 0, 4, 9, 3, 0, 0}, 3);
  std::vector<std::int8_t> codes(100, 1);
  std::byte out[100];
  EXPECT_NE(code.encode(table, codes.data(), 100, out, 100), gq::wire::too_long);
  for (std::int8_t c : {2, -3, 5, -128}) {
    codes[50] = c;
    EXPECT_EQ(code.encode(table, codes.data(), 100, out, 100), gq::wire::too_long) << int{c};
  }
}

TEST(Huffman, tables_that_are_no_complete_code_are_refused) {
  gq::wire::huffman<> const code;
  gq::wire::huffman<>::table table;
  auto const reads = [&](std::vector<int> const& list) {
    std::vector<std::byte> bytes;
    for (int b : list) bytes.push_back(static_cast<std::byte>(b));
    return !code.read_table(bytes.data(), static_cast<std::uint32_t>(list.size()) - 1, table);
  };
  EXPECT_TRUE(reads({0x11, 0x00}));
  EXPECT_FALSE(reads({0x01, 0x00})) << "half a code";
  EXPECT_FALSE(reads({0x11, 0x01})) << "one and a half";
  EXPECT_FALSE(reads({0x00, 0x00})) << "no words";
  EXPECT_FALSE(reads({0x11, 0x10})) << "a length behind the last code";
  EXPECT_FALSE(reads({0xd1, 0x01})) << "a word of 13 bits";
  EXPECT_TRUE(reads({0x12, 0x02}));
  EXPECT_TRUE(code.read_table(nullptr, 0, table));
  EXPECT_TRUE(code.read_table(nullptr, 128, table));
  // all tables of two bytes: accepted exactly when the words fill the tree
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      int kraft = 0;
      for (int l : {a & 15, a >> 4, b & 15}) kraft += l == 0 ? 0 : l > 12 ? 1 << 20 : 4096 >> l;
      ASSERT_EQ(reads({a, b}), kraft == 4096 && b >> 4 == 0) << a << ' ' << b;
    }
}

TEST(Huffman, what_does_not_fit_is_refused_with_numbers) {
  gq::wire::huffman<> const code;
  EXPECT_THROW(code.make_table(counts_t(257, 1), 128), gq::configuration_error);
  EXPECT_THROW(code.make_table(counts_t(1, 1), 0), gq::configuration_error);
  EXPECT_THROW(code.make_table(counts_t(6, 1), 3), gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
