// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Elias codes: the suite, golden bytes, omega itself, and lengths against the theorems.

#include "globalq/wire/elias.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "globalq/wire/coded.hpp"
#include "tests/wire/code_suite.hpp"

namespace globalq_test {

INSTANTIATE_TYPED_TEST_SUITE_P(elias, block_code_suite, gq::wire::elias<>);
INSTANTIATE_TYPED_TEST_SUITE_P(elias16, block_code_suite, gq::wire::elias<std::int16_t>);

namespace {

namespace detail = gq::wire::detail;

std::string bits_of_omega(std::uint32_t k) {
  detail::codeword const w = detail::omega(k);
  std::string text;
  for (int i = detail::length_of(w) - 1; i >= 0; --i)
    text += ((detail::bits_of(w) >> i) & 1) != 0 ? '1' : '0';
  return text;
}

TEST(Omega, words_are_those_of_the_published_code) {
  std::vector<std::pair<std::uint32_t, std::string>> const known = {{1, "0"},
                                                                    {2, "100"},
                                                                    {3, "110"},
                                                                    {4, "101000"},
                                                                    {7, "101110"},
                                                                    {8, "1110000"},
                                                                    {15, "1111110"},
                                                                    {16, "10100100000"},
                                                                    {31, "10100111110"},
                                                                    {32, "101011000000"},
                                                                    {100, "1011011001000"},
                                                                    {1000, "11100111111010000"}};
  for (auto const& [k, word] : known) EXPECT_EQ(bits_of_omega(k), word);
}

TEST(Omega, every_number_comes_back_and_its_length_is_within_both_bounds) {
  for (std::uint32_t k = 1; k < 65536; ++k) {
    detail::codeword const w = detail::omega(k);
    int const length = detail::length_of(w);
    ASSERT_EQ(length, detail::omega_length(k));
    // whatever follows it
    std::uint64_t const top = std::uint64_t{detail::bits_of(w)} << (64 - length);
    for (std::uint64_t rest : {std::uint64_t{0}, ~std::uint64_t{0} >> length}) {
      detail::omega_value const v = detail::read_omega(top | rest);
      ASSERT_EQ(v.value, k);
      ASSERT_EQ(v.length, length);
    }
    double const log = std::log2(static_cast<double>(k));
    ASSERT_LE(length, 3 + 2 * log + 1e-9) << k;
    ASSERT_LE(length, 1 + log + 3 * std::log2(1 + log) + 1e-9) << k;
  }
  // lengths grow with numbers, so numbers 2^j stand for all: the bound for every 32-bit number
  for (int j = 1; j < 32; ++j)
    EXPECT_LE(detail::omega_length(std::uint32_t{1} << j), 1 + j + 3 * std::log2(1.0 + j)) << j;
  EXPECT_EQ(detail::read_omega(~std::uint64_t{0}).length, 0);
}

template <class Int>
std::vector<int> elias_bytes(std::vector<Int> const& codes) {
  return numbers(encoded(gq::wire::elias<Int>{}, {}, codes));
}

// Other bytes are another format: bump its version.
TEST(Elias, golden_bytes) {
  using list = std::vector<int>;
  // dense: omega(|code| + 1), sign
  EXPECT_EQ(elias_bytes<std::int8_t>({}), (list{0}));
  EXPECT_EQ(elias_bytes<std::int8_t>({0, 0, 2, 0, -2, 0}), (list{0, 0b00110001, 0b10100000}));
  EXPECT_EQ(elias_bytes<std::int8_t>({0, 6, -127}), (list{0, 0b01011100, 0b10111100, 0b00000010}));
  // sparse: 1 and -1 from the left are omega(1) 0, a sign, omega(1) 0; then omega(1) to the end
  EXPECT_EQ(elias_bytes<std::int8_t>({1, -1, 1, 1, 1, 1, 1, 1, 1}), (list{1, 0b00001000, 0, 0, 0}));
  // omega(10), sign, omega(3), omega(16) to the end
  std::vector<std::int16_t> few(25, 0);
  few[9] = -3;
  EXPECT_EQ(elias_bytes(few), (list{1, 0b11101001, 0b11010100, 0b10000000}));
  // from 1,024 codes on four streams, or one for few non-zeros
  std::vector<std::int8_t> codes(4096, 0);
  EXPECT_EQ(elias_bytes(codes), (list{2, 0b11110010, 0b00000000, 0b00100000}));  // omega(4097)
  codes.assign(1024, 1);
  auto const block = elias_bytes(codes);
  ASSERT_EQ(block.size(), 1U + 6 + 4 * 97);  // 256 codes of 3 bits, and 1 bit to the end
  EXPECT_EQ((list(block.begin(), block.begin() + 8)), (list{1, 97, 0, 97, 0, 97, 0, 0}));
}

TEST(Elias, the_shorter_form_is_taken) {
  std::mt19937 draw(1);
  bool taken[3] = {};
  for (int round = 0; round < 300; ++round) {
    int const count = round % 2 == 0 ? 4096 : 500;
    std::uint32_t const max_code = 1 + draw() % 20, rare = 1 + draw() % 20;
    auto codes = block_of<std::int8_t>(block_kind::flat, count, max_code, draw());
    for (auto& c : codes)
      if (draw() % rare != 0) c = 0;
    auto const bytes = encoded(gq::wire::elias<>{}, {}, codes);
    std::size_t dense_bits = 0, sparse_bits = 0;
    int gap = 0, non_zeros = 0;
    for (auto const c : codes) {
      auto const l = static_cast<std::uint32_t>(c < 0 ? -c : c);
      dense_bits += static_cast<std::size_t>(detail::omega_length(l + 1) + (l != 0));
      ++gap;
      if (l != 0) {
        sparse_bits += static_cast<std::size_t>(detail::omega_length(static_cast<std::uint32_t>(gap)) + 1 +
                                                detail::omega_length(l));
        gap = 0;
        ++non_zeros;
      }
    }
    std::size_t const shorter = std::min(dense_bits, sparse_bits);
    // form, directory, and for each of four streams what fills its last byte and the word to its end
    EXPECT_GE(8 * bytes.size() + (count == 4096 ? 4 * 2 * 18 : 0), shorter);
    EXPECT_LE(8 * bytes.size(), shorter + 8 + 48 + 4 * (7 + 18));
    taken[std::to_integer<std::size_t>(bytes[0])] = true;
  }
  EXPECT_TRUE(taken[0] && taken[1] && taken[2]);
}

// ---- lengths against the theorems

enum class input { normal, ones, one_hot, heavy, half };

/// Codes of a vector: levels k / s of its l2 norm, stochastic rounding.
std::vector<std::int16_t> quantized(input kind, std::size_t d, double s, std::mt19937_64& draw) {
  std::normal_distribution<double> normal;
  std::vector<double> x(d);
  for (std::size_t i = 0; i < d; ++i) {
    double const z = normal(draw);
    x[i] = kind == input::normal ? z : kind == input::ones ? 1 : kind == input::heavy ? z * z * z : 0;
    if (kind == input::half && i % 4 == 0) x[i] = 1;
  }
  if (kind == input::one_hot) x[d / 2] = 1;
  double square = 0;
  for (double v : x) square += v * v;
  std::vector<std::int16_t> codes(d);
  std::uniform_real_distribution<double> uniform;
  for (std::size_t i = 0; i < d; ++i) {
    double const t = std::fabs(x[i]) * s / std::sqrt(square), low = std::floor(t);
    auto const level = static_cast<std::int16_t>(low + (uniform(draw) < t - low ? 1 : 0));
    codes[i] = static_cast<std::int16_t>(x[i] < 0 ? -level : level);
  }
  return codes;
}

/// Bits of the published code: for each non-zero its distance, its sign and its level.
double published_bits(std::vector<std::int16_t> const& codes) {
  double bits = 0;
  std::uint32_t gap = 0;
  for (auto const c : codes) {
    ++gap;
    if (c == 0) continue;
    bits += detail::omega_length(gap) + 1 + detail::omega_length(static_cast<std::uint32_t>(c < 0 ? -c : c));
    gap = 0;
  }
  return bits;
}

/// docs/theory.md, "Length of Elias codes": R [7 + 2 log2(D / R) + log2(V / R)].
double bound(double d, double s) {
  double const r = std::min(d, s * std::sqrt(d)), v = s * s + std::min(d / 4, s * std::sqrt(d));
  return r * (7 + 2 * std::log2(d / r) + std::log2(v / r));
}

/// The same with 1 + log2 k + 3 log2(1 + log2 k) for |omega(k)|: the largest over N <= R.
double fine_bound(double d, double s) {
  double const r = std::min(d, s * std::sqrt(d)), v = s * s + std::min(d / 4, s * std::sqrt(d));
  auto const beta = [](double log) { return 1 + log + 3 * std::log2(1 + log); };
  double most = 0;
  for (int k = 0; k <= 1000; ++k) {
    double const n = r * std::exp2(-k / 100.0);
    most = std::max(most, n * (beta(std::log2(d / n)) + 1 + beta(std::max(0.0, std::log2(v / n) / 2))));
  }
  return most;
}

/// What blocks add: 16 bits of the index, form and directory, what fills bytes, and the words to the ends.
double bits_of_blocks(double d) { return std::ceil(d / 4096) * (16 + 8 + 48 + 4 * (7 + 18)); }

TEST(EliasLength, is_within_the_bound_of_the_theorem_for_few_and_many_levels_and_all_inputs) {
  std::mt19937_64 draw(11);
  for (std::size_t d : {std::size_t{100}, std::size_t{4096}, std::size_t{1} << 16})
    for (double s : {1.0, 3.0, 10.0, std::sqrt(static_cast<double>(d))})
      for (input kind : {input::normal, input::ones, input::one_hot, input::heavy, input::half}) {
        constexpr int draws = 12;
        double mean = 0, square = 0, body_mean = 0;
        for (int k = 0; k < draws; ++k) {
          auto const codes = quantized(kind, d, s, draw);
          double const bits = published_bits(codes);
          mean += bits / draws;
          square += bits * bits / draws;
          gq::wire::coded<gq::wire::elias<std::int16_t>> body({}, static_cast<std::uint32_t>(s) + 1);
          std::vector<std::byte> out(body.capacity(d));
          body_mean += 8.0 * static_cast<double>(body.encode(in_turn{}, codes.data(), d, out)) / draws;
        }
        // the bound is on the expectation: four standard errors of its estimate are allowed
        double const error = 4 * std::sqrt(std::max(0.0, square - mean * mean) / (draws - 1));
        double const n = static_cast<double>(d), least = std::min(bound(n, s), fine_bound(n, s));
        EXPECT_LE(mean, least + error) << d << " levels " << s << " input " << static_cast<int>(kind);
        // the encoder may take the dense form: never more bits than the sparse one
        EXPECT_LE(body_mean, least + error + bits_of_blocks(n))
            << d << " levels " << s << " input " << static_cast<int>(kind);
      }
}

// Alistarh et al., Corollary 3.3: an encoding of 2.8 D + 32. All-ones vectors take 3 D, and 4 D if every value has a word and
// a sign; (2 + 13/12) D is a bound.
TEST(EliasLength, at_sqrt_d_levels_of_the_l2_norm_2_8_bits_hold_for_normals_but_not_for_ones) {
  std::mt19937_64 draw(12);
  std::size_t const d = 1 << 16;
  double const n = static_cast<double>(d), s = 256;
  double const normal = published_bits(quantized(input::normal, d, s, draw));
  EXPECT_LE(normal, 2.8 * n);
  EXPECT_NEAR(normal, 2.76 * n, 0.02 * n);  // a deviation of the sum is below 2 sqrt(D) = 0.008 D bits
  EXPECT_EQ(published_bits(quantized(input::ones, d, s, draw)), 3 * n);
  EXPECT_EQ(1 + detail::omega_length(2), 4);
  for (input kind : {input::normal, input::ones, input::one_hot, input::heavy, input::half})
    EXPECT_LE(published_bits(quantized(kind, d, s, draw)), 37.0 / 12 * n);
}

// The constants of that bound: 1/3 + 3/4 t^2 is above the expected length of a level's word, where the t^2 sum to D; and
// |omega(g)| <= 2 g - 1, where the gaps g sum to D at most: with their signs they take 2 D.
TEST(EliasLength, the_constants_of_the_bound_at_sqrt_d_levels_hold) {
  for (int i = 0; i <= 100000; ++i) {
    double const t = i * 0.01, low = std::floor(t);
    auto const word = [](double level) {
      return level == 0 ? 0.0 : static_cast<double>(detail::omega_length(static_cast<std::uint32_t>(level)));
    };
    double const expected = word(low) * (1 - (t - low)) + word(low + 1) * (t - low);
    ASSERT_LE(expected, 1.0 / 3 + 0.75 * t * t + 1e-12) << t;
  }
  for (std::uint32_t gap = 1; gap < 65536; ++gap) ASSERT_LE(detail::omega_length(gap), 2.0 * gap - 1);
}

}  // namespace
}  // namespace globalq_test
