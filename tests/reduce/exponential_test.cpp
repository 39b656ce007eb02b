// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The exponential reduce: its distribution, counted over all words that matter, against the
/// definition.
///
/// A code e > 0 with its sign is +-2^-e, 0 is zero. With e1 <= e2 and Delta = e2 - e1: equal signs give e1 -
/// 1 with probability 2^-Delta, else e1; opposite signs give zero for Delta = 0, else e1 + 1 with probability
/// 2^(1 - Delta), else e1, with the sign of the first. Associativity is not claimed: it holds in expectation
/// only.

#include "globalq/kernel/add_tiles.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace {

namespace gq = globalq;
using gq::reduce::exponential;

constexpr int low_bits = 13;  // decide everything for Delta <= 13
constexpr std::uint32_t low_words = 1U << low_bits;

template <class Int>
int add(int a, int b, std::uint32_t word) {
  return exponential::add<Int>(static_cast<Int>(a), static_cast<Int>(b), word);
}

/// Outcome -> number of the 2^13 low words that give it.
using distribution = std::map<int, std::uint32_t>;

template <class Int>
distribution counted(int a, int b, std::uint32_t high) {
  distribution d;
  for (std::uint32_t w = 0; w < low_words; ++w) ++d[add<Int>(a, b, w | (high << low_bits))];
  return d;
}

distribution defined(int a, int b) {
  if (a == 0) return {{b, low_words}};
  if (b == 0) return {{a, low_words}};
  if (std::abs(a) > std::abs(b)) std::swap(a, b);
  int const sign = a < 0 ? -1 : 1, e1 = std::abs(a), delta = std::abs(b) - e1;
  distribution d;
  if ((a < 0) == (b < 0)) {
    d[sign * (e1 - 1)] += low_words >> delta;
    d[sign * e1] += low_words - (low_words >> delta);
  } else if (delta == 0) {
    d[0] = low_words;
  } else {
    d[sign * (e1 + 1)] += low_words >> (delta - 1);
    d[sign * e1] += low_words - (low_words >> (delta - 1));
  }
  std::erase_if(d, [](auto const& entry) { return entry.second == 0; });
  return d;
}

/// 2^20 times the value of a code of magnitude at most 20.
std::int64_t scaled_value(int code) {
  if (code == 0) return 0;
  std::int64_t const v = std::int64_t{1} << (20 - std::abs(code));
  return code < 0 ? -v : v;
}

template <class Int>
void expect_definition() {
  for (int a = -12; a <= 12; ++a)
    for (int b = -12; b <= 12; ++b)
      for (std::uint32_t high : {0U, 0x7ffffU, 0x2aaaaU}) {
        ASSERT_EQ(counted<Int>(a, b, high), defined(a, b)) << a << " + " << b;
      }
}

TEST(ExponentialReduce, every_pair_of_codes_up_to_12_has_exactly_the_defined_distribution) {
  expect_definition<std::int8_t>();
}
TEST(ExponentialReduce, codes_of_16_bits_have_the_same_distribution) { expect_definition<std::int16_t>(); }

// Four codes in a register, each with the word rotated by a byte more: every pair of codes, words of few low bits and of
// all, so that each way to a decision is taken.
TEST(ExponentialReduce, four_codes_at_once_are_four_single_ones) {
  std::uint64_t state = 1;
  auto const next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>(state >> 32);
  };
  auto const code = [&] { return static_cast<std::int8_t>(next() % 255 - 127); };
  for (int a = -127; a <= 127; ++a)
    for (int b = -127; b <= 127; ++b)
      for (int t = 0; t < 36; ++t) {
        std::uint32_t const zeros = next() % 33;
        std::uint32_t word = zeros == 32 || t % 6 == 5 ? 0 : next() << (t % 3 == 0 ? 0 : zeros);
        word = gq::rotate_left(word, 8 * (t % 4));
        std::uint32_t as = 0, bs = 0, sums = 0;
        for (int r = 0; r < 4; ++r) {
          std::int8_t const x = r == t % 4 ? static_cast<std::int8_t>(a) : code(),
                            y = r == t % 4 ? static_cast<std::int8_t>(b) : code();
          auto const put = [r](std::uint32_t& four, std::int8_t c) {
            four |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(c)) << (8 * r);
          };
          put(as, x);
          put(bs, y);
          put(sums, exponential::add(x, y, gq::rotate_left(word, 8 * r)));
        }
        ASSERT_EQ(exponential::add_quad(as, bs, word), sums) << std::hex << as << ' ' << bs << ' ' << word;
      }
}

// Codes from 2 on: one addition of equal signs may lower a code by one, and code 0 means zero (hence the
// headroom).
TEST(ExponentialReduce, the_expected_value_is_exactly_the_sum) {
  for (int a = -13; a <= 13; ++a)
    for (int b = -13; b <= 13; ++b) {
      if (std::abs(a) == 1 || std::abs(b) == 1) continue;
      std::int64_t sum = 0;
      for (auto const& [code, words] : counted<std::int8_t>(a, b, 0)) sum += scaled_value(code) * words;
      ASSERT_EQ(sum, (scaled_value(a) + scaled_value(b)) * std::int64_t{low_words}) << a << " + " << b;
    }
}

// Xin et al., Algorithm 2, prints k = -ceil(log2 p), p uniform, and needs P(k > b) = 2^-b. A floor gives it.
TEST(ExponentialReduce, the_printed_ceiling_would_halve_the_probabilities) {
  for (int b = 0; b <= 8; ++b) {
    std::uint32_t ceilings = 0, floors = 0;
    for (std::uint32_t j = 0; j < low_words; ++j) {
      double const log = std::log2((j + 0.5) / low_words);  // never an integer
      ceilings += -std::ceil(log) > b;
      floors += -std::floor(log) > b;
    }
    EXPECT_EQ(floors, low_words >> b) << b;
    EXPECT_EQ(ceilings, low_words >> (b + 1)) << b;
    EXPECT_EQ(floors, counted<std::int8_t>(20, 20 + b, 0).at(19)) << b;
  }
}

TEST(ExponentialReduce, without_headroom_two_maxima_become_zero) {
  // why codes start above the height of the reduction: 2^-1 + 2^-1 = 2^0 has no code
  EXPECT_EQ(add<std::int8_t>(1, 1, 12345), 0);
  EXPECT_EQ(add<std::int8_t>(2, 2, 12345), 1);
}

// With Delta <= 31 the event is "the low D bits are zero", D = Delta (equal signs) or Delta - 1 (opposite):
// its words are w = k 2^D, and one set bit below D is enough to leave it. So its probability is 2^-D exactly.
template <class Int>
void expect_event(int e1, int delta) {
  int const e2 = e1 + delta;
  for (int sign : {1, -1})
    for (bool opposite : {false, true}) {
      int const a = sign * e1, b = (opposite ? -sign : sign) * e2, d = opposite ? delta - 1 : delta;
      int const bits = d > 31 ? 31 : d, moved = sign * (opposite ? e1 + 1 : e1 - 1);
      std::uint32_t const event = bits == 0 ? 0x12345678U : (0xdeadbeefU >> bits) << bits;
      ASSERT_EQ(add<Int>(a, b, 0), moved) << a << " + " << b;
      ASSERT_EQ(add<Int>(a, b, event), moved) << a << " + " << b;
      ASSERT_EQ(add<Int>(b, a, event), moved) << b << " + " << a;
      for (int bit = 0; bit < bits; ++bit) {
        ASSERT_EQ(add<Int>(a, b, event | (1U << bit)), a) << a << " + " << b << ", bit " << bit;
        ASSERT_EQ(add<Int>(a, b, 1U << bit), a) << a << " + " << b << ", bit " << bit;
      }
      for (int bit = bits; bit < 32; ++bit) ASSERT_EQ(add<Int>(a, b, 1U << bit), moved) << a << " + " << b;
    }
}

TEST(ExponentialReduce, differences_up_to_31_are_exact) {
  for (int delta = 1; delta <= 31; ++delta)
    for (int e1 : {1, 2, 17, 60}) {
      expect_event<std::int8_t>(e1, delta);
      expect_event<std::int16_t>(e1, delta);
      expect_event<std::int32_t>(e1, delta);
    }
}

// Beyond, the event has 31 bits: a probability of 2^-31 instead of 2^-D, a bias below 2^-31 of the larger
// operand.
TEST(ExponentialReduce, larger_differences_have_the_probability_of_31_bits) {
  for (int delta : {32, 33, 40, 64, 100, 126}) expect_event<std::int8_t>(1, delta);
  for (int delta : {32, 127, 128, 1000, 32000}) expect_event<std::int16_t>(5, delta);
}

TEST(ExponentialReduce, a_zero_operand_leaves_the_other_unchanged_whatever_the_word) {
  for (std::uint32_t w : {0U, 1U, 0x80000000U, 0xffffffffU})
    for (int code = -127; code <= 127; ++code) {
      ASSERT_EQ(add<std::int8_t>(code, 0, w), code);
      ASSERT_EQ(add<std::int8_t>(0, code, w), code);
      ASSERT_EQ(add<std::int16_t>(code * 250, 0, w), code * 250);
    }
}

TEST(ExponentialReduce, no_addition_moves_the_larger_magnitude_by_more_than_one_code) {
  for (int a = -127; a <= 127; ++a)
    for (int b = -127; b <= 127; ++b) {
      if (a == 0 || b == 0 || a == -b) continue;
      int const larger = std::abs(a) <= std::abs(b) ? a : b;
      for (std::uint32_t w : {0U, 1U, 0x80000000U, 0xfffffffeU}) {
        int const sum = add<std::int8_t>(a, b, w);
        ASSERT_LE(std::abs(sum - larger), 1) << a << " + " << b;
        ASSERT_TRUE(sum == 0 || (sum < 0) == (larger < 0)) << a << " + " << b << ": the sign of the larger";
      }
    }
}

TEST(ExponentialReduce, opposite_values_cancel_whatever_the_word) {
  for (int e = 1; e <= 127; ++e)
    for (std::uint32_t w : {0U, 1U, 0xffffffffU}) {
      ASSERT_EQ(add<std::int8_t>(e, -e, w), 0);
      ASSERT_EQ(add<std::int8_t>(-e, e, w), 0);
    }
}

TEST(ExponentialReduce, operands_commute_for_every_word) {
  for (int a = -127; a <= 127; a += 2)
    for (int b = -127; b <= 127; ++b)
      for (std::uint32_t w : {0U, 2U, 64U, 0x10000U, 0xffffffffU})
        ASSERT_EQ(add<std::int8_t>(a, b, w), add<std::int8_t>(b, a, w)) << a << " + " << b;
}

// Equal signs lower 31 levels h times along a chain of maxima: no code below e - h.
TEST(ExponentialReduce, a_chain_of_h_additions_lowers_a_code_by_at_most_h) {
  std::uint32_t state = 1;
  for (int h = 1; h <= 20; ++h) {
    int code = h + 1;
    for (int k = 0; k < h; ++k) {
      state = state * 1664525U + 1013904223U;
      code = add<std::int8_t>(code, h + 1, state >> 4);
      ASSERT_GE(code, h - k);
    }
    ASSERT_GE(code, 1);
  }
}

static_assert(gq::ReduceOperator<exponential>);
static_assert(exponential::draws);

/// A tile function adds as the scalar rule does, all pairs of codes, words with many low zeros among them.
TEST(ExponentialReduce, tiles_equal_the_scalar_rule) {
#if GLOBALQ_AVX512 || GLOBALQ_AVX2
  std::uint64_t state = 88172645463325252ULL;
  auto const next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  std::vector<std::int8_t> a(1024), b(1024), sum(1024);
  for (int round = 0; round < 400; ++round) {
    gq::random::stream const s{next(), next() >> 16, static_cast<std::uint32_t>(next()),
                               gq::random::purpose::reduce};
    std::uint64_t const tile = next() >> 24;
    int const tiles = 1 + round % 4, largest = round % 3 == 0 ? 6 : 127;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 1024; ++i) {
      auto const code = [&] {
        return static_cast<std::int8_t>(
            static_cast<int>(next() % (2U * static_cast<unsigned>(largest) + 1U)) - largest);
      };
      a[i] = code();
      b[i] = code();
      sum[i] = 99;
      if (i < 256U * static_cast<unsigned>(tiles))
        bits |= static_cast<std::uint32_t>(std::abs(a[i]) | std::abs(b[i]));
    }
    EXPECT_EQ(gq::kernel::add_tiles(a.data(), b.data(), s, tile, tiles, sum.data()), bits);
    for (std::size_t i = 0; i < 1024; ++i) {
      if (i >= 256U * static_cast<unsigned>(tiles)) {
        ASSERT_EQ(sum[i], 99) << "behind the last tile";
      } else {
        ASSERT_EQ(sum[i], exponential::add(a[i], b[i], s.word(256 * tile + i)))
            << int{a[i]} << " + " << int{b[i]} << ", value " << i;
      }
    }
    gq::kernel::add_tiles(a.data(), b.data(), s, tile, tiles, b.data());  // in place
    for (std::size_t i = 0; i < 256U * static_cast<unsigned>(tiles); ++i) ASSERT_EQ(b[i], sum[i]) << i;
  }
#else
  GTEST_SKIP() << "this machine has no tile function of its own";
#endif
}

#if GLOBALQ_AVX512 || GLOBALQ_AVX2
/// Words that are known, in place of drawn ones.
struct given {
  gq::kernel::detail::tile_words words;
  struct rounds {
    static constexpr int inner = 0;
    gq::kernel::detail::tile_words words;
    template <int First, int Last>
    void run() {}
    gq::kernel::detail::tile_words last() const { return words; }
  };
  rounds begin(std::uint64_t) const { return {words}; }
  gq::kernel::detail::tile_words operator()(std::uint64_t) const { return words; }
};

/// Words that a stream gives rarely: their low bits, rotated to every coordinate, are zero up to any number.
TEST(ExponentialReduce, rare_words_are_decided_as_the_scalar_rule_does) {
  std::uint32_t salt = 1;
  for (int zeros = 0; zeros <= 32; ++zeros)
    for (int turn = 0; turn < 4; ++turn)
      for (int a = -127; a <= 127; a += 3) {
        alignas(64) std::uint32_t raw[64];
        for (std::uint32_t& w : raw) {
          salt = salt * 1664525U + 1013904223U;
          w = gq::rotate_left(zeros == 32 ? 0U : salt << zeros, 8 * turn);
        }
        gq::kernel::detail::tile_words words;
        static_assert(sizeof words == sizeof raw);
        std::memcpy(&words, raw, sizeof words);
        std::int8_t x[256], y[256], sum[256];
        for (int i = 0; i < 256; ++i) {
          x[i] = static_cast<std::int8_t>(a);
          y[i] = static_cast<std::int8_t>(i == 0 ? 0 : i - 128);
        }
        gq::kernel::detail::add_tiles<exponential>(x, y, given{words}, 0, 1, sum, 0);
        for (int i = 0; i < 256; ++i)
          ASSERT_EQ(sum[i], exponential::add(x[i], y[i], gq::rotate_left(raw[i / 4], 8 * (i % 4))))
              << a << " + " << int{y[i]} << ", zeros " << zeros << ", turn " << turn;
      }
}
#endif

}  // namespace
