// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief THC: the rotation, rounding without bias, and sums of indices.

#include <globalq/compressor/thc.hpp>
#include <globalq/schedule/native.hpp>
#include <globalq/schedule/ring.hpp>

#include <cmath>

#include "tests/compressor/cases.hpp"
#include "tests/compressor/sampling.hpp"

namespace gq = globalq;
namespace cp = globalq::compressor;
using cases::vector;

namespace {

TEST(Thc, the_transform_twice_is_a_multiple_and_keeps_the_length) {
  for (std::uint64_t d : {1UL, 2UL, 8UL, 1024UL}) {
    vector const x = cases::values(d, 3, 100);
    vector y = x;
    cp::detail::hadamard(y.data(), d);
    EXPECT_EQ(cases::norm2(y), static_cast<double>(d) * cases::norm2(x));  // integers: exact
    cp::detail::hadamard(y.data(), d);
    for (std::size_t i = 0; i < d; ++i) EXPECT_EQ(y[i], static_cast<float>(d) * x[i]);
  }
  for (std::uint64_t d : {1UL, 8UL, 16UL, 32UL, 4096UL}) {
    vector x = cases::values(d, 8), y;
    for (float& v : x) v *= 0.1F;  // sums are rounded
    y = x;
    cp::detail::hadamard(x.data(), d);
    cp::detail::hadamard_portable(y.data(), d);
    EXPECT_TRUE(cases::same_bits(x, y));
    vector s(d, 1.0F), t(d, 1.0F);  // signs of part of the vector are those of the whole
    gq::random::stream const bits{1, 2, 0, gq::random::purpose::rotate};
    cp::detail::turn_signs(bits, 5, d, s.data());
    for (std::uint64_t i = 0; i < d; ++i) cp::detail::turn_signs(bits, 5 + i, 1, t.data() + i);
    EXPECT_EQ(s, t);
  }
  // row r, column c: (-1)^(bits that both have)
  for (std::uint64_t c = 0; c < 8; ++c) {
    vector unit(8);
    unit[c] = 1;
    cp::detail::hadamard(unit.data(), 8);
    for (std::uint64_t r = 0; r < 8; ++r) EXPECT_EQ(unit[r], std::popcount(r & c) % 2 != 0 ? -1.0F : 1.0F);
  }
}

TEST(Thc, unbiased_with_errors_spread_evenly_by_the_rotation) {
  std::uint64_t const d = 64;
  vector x = cases::values(d, 6, 10);
  x[17] = 500;  // without a rotation all others would be lost
  for (int bits : {2, 4, 8})
    support::on_threads(1, [&](auto& workers) {
      cp::thc c{cases::one_layer(d), {.bits = bits, .block = 64}};
      int const calls = 3000;
      auto const s = cases::sample(x, calls, [&](int t, vector& mean) {
        c.reduce(workers, x, mean, {}, static_cast<std::uint64_t>(t));
      });
      // at most range / top, in the rotated domain: a variance of (range / top)^2 a value, range <= |x|_1 / sqrt(d)
      double l1 = 0;
      for (float v : x) l1 += std::abs(static_cast<double>(v));
      double const gap = l1 / std::sqrt(64.0) / ((1 << bits) - 1) * 2;
      for (std::size_t i = 0; i < d; ++i)
        EXPECT_NEAR(s.mean[i], static_cast<double>(x[i]), 5 * gap / 2 / std::sqrt(calls) + 1e-3) << bits;
      EXPECT_LT(s.error, static_cast<double>(d) * gap * gap / 4);
      EXPECT_GT(s.error, 0);
    });
}

TEST(Thc, all_worlds_and_lengths_give_the_mean_of_the_messages) {
  for (int bits : {2, 4, 8})
    cases::for_worlds(
        [&](auto layers) {
          return cp::thc{layers, {.bits = bits, .block = 256}};
        },
        [&](auto const& x, auto const& got) {
          // magnitudes up to 1000 * 256 in float32 while rotated, over 256
          cases::expect_mean_of_messages(x, got, 0.05);
        });
}

TEST(Thc, any_schedule_gives_the_same_bits_since_sums_are_integers) {
  for (int n : {2, 5, 9, 18}) {  // 18 * 15 needs 16 bits
    auto const x = cases::inputs(n, 5000);
    auto const a = cases::run(x, [] { return cp::thc{cases::one_layer(5000)}; });
    auto const b = cases::run(x, [] {
      return cp::thc{cases::one_layer(5000), {}, {.chunk_values = 2048}, gq::schedule::ring{}};
    });
    EXPECT_TRUE(cases::same_bits(a.mean[0], b.mean[0]));
    cases::expect_same_means(a);
    cases::expect_same_means(b);
  }
}

TEST(Thc, large_and_small_magnitudes_are_means_within_float32) {
  for (float size : {3.0e38F, 1.0e-30F}) {
    std::vector<vector> const x(3, vector(100, size));
    auto const got = cases::run(x, [] { return cp::thc{cases::one_layer(100), {.bits = 8}}; });
    if (got.outcome[0] == cp::outcome::mean) {
      for (float v : got.mean[0]) EXPECT_NEAR(v / size, 1, 0.3);
    }
    cases::expect_same_means(got);
    if (size < 1) {
      EXPECT_EQ(got.outcome[0], cp::outcome::mean);
    }
  }
  auto const zero = cases::run({vector(70), vector(70)}, [] { return cp::thc{cases::one_layer(70)}; });
  EXPECT_EQ(zero.mean[1], vector(70));
  EXPECT_EQ(zero.rest[1], vector(70));
}

TEST(Thc, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::thc{layers, {}, settings}; });
  auto const layers = cases::one_layer(5);
  EXPECT_THROW((cp::thc{layers, {.bits = 3}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.block = 100}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {}, {}, gq::schedule::native{}}), gq::configuration_error);
}

}  // namespace
