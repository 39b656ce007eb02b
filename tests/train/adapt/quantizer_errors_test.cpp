// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Expected errors of quantizers against the errors of many encodings.

#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/train/adapt/quantizer_errors.hpp>

#include <globalq/named/description.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace gq = globalq;
namespace ad = globalq::adapt;

namespace {

/// Heavy tails, some zeros, and a bucket of zeros.
std::vector<float> values(std::size_t n) {
  std::mt19937 draw(3);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    double const wide = (static_cast<int>(draw() % 4097) - 2048) * 0x1p-11;
    x[i] = i / 64 == 2 || draw() % 16 == 0 ? 0.0F : static_cast<float>(wide * wide * wide);
  }
  return x;
}

struct measured {
  double mean = 0, deviation = 0;  ///< of the squared error; of its mean
};

measured encode(gq::any_quantizer const& op, std::vector<float> const& x, int draws) {
  gq::vector_codec codec(op);
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  std::vector<float> y(x.size());
  double sum = 0, squares = 0;
  for (int k = 0; k < draws; ++k) {
    gq::encoding_key const key{.seed = 7, .step = static_cast<std::uint64_t>(k), .worker = 1};
    std::size_t const used = codec.encode(x, key, frame);
    codec.decode(std::span(frame).first(used), key, y);
    double error = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const e = static_cast<double>(y[i]) - static_cast<double>(x[i]);
      error += e * e;
    }
    sum += error;
    squares += error * error;
  }
  double const mean = sum / draws;
  return {mean, std::sqrt(std::max(0.0, squares / draws - mean * mean) / draws)};
}

TEST(QuantizerError, is_the_mean_over_encodings) {
  std::vector<float> const x = values(777);
  int compared = 0;
  for (std::string const norm : {"linf", "local:2", "l:2,2"})
    for (std::string const levels : {"uniform:1", "uniform:7", "exponential:5", "exponential:6:1.5",
                                     "table:0,0.1,0.3,1", "symmetric:0.1,0.3,1", "e2m1"})
      for (std::string const rounding : {"stochastic", "random-shift", "random-shift-unshifted"})
        for (std::uint64_t bucket : {0U, 64U}) {
          if (rounding == "random-shift" && levels.substr(0, 7) != "uniform") continue;
          gq::any_quantizer const op = gq::named::make(
              {.norm = norm, .levels = levels, .rounding = rounding, .wire = "int8", .bucket = bucket});
          measured const m = encode(op, x, 400);
          double const expected = ad::quantizer_error(op)(x);
          // 100 comparisons at 5.5 deviations: one in 200,000 fails a healthy build. 1e-6: float32 of the decoded values
          EXPECT_NEAR(m.mean, expected, 5.5 * m.deviation + 1e-6 * expected)
              << norm << " " << levels << " " << rounding << " " << bucket;
          EXPECT_GT(expected, 0);
          EXPECT_LT(m.deviation, 0.2 * expected);  // the comparison means something
          ++compared;
        }
  EXPECT_EQ(compared, 3 * 2 * (2 * 3 + 5 * 2));
}

TEST(QuantizerError, of_rounding_to_nearest_is_what_happens) {
  std::vector<float> const x = values(777);
  for (std::string const levels : {"uniform:7", "exponential:5", "table:0,0.1,0.3,1", "symmetric:0.1,0.3,1"})
    for (std::uint64_t bucket : {0U, 64U}) {
      gq::any_quantizer const op =
          gq::named::make({.levels = levels, .rounding = "nearest", .wire = "packed:4", .bucket = bucket});
      measured const m = encode(op, x, 1);
      EXPECT_NEAR(ad::quantizer_error(op)(x), m.mean, 1e-5 * m.mean) << levels << " " << bucket;
    }
}

TEST(QuantizerError, knows_block_scaled_formats_and_powers_of_two) {
  std::vector<float> const x = values(777);
  for (gq::named::description const& words :
       {gq::named::description{.norm = "shared-exponent", .levels = "e2m1", .wire = "packed:4", .bucket = 32},
        gq::named::description{.norm = "two-level", .levels = "e2m1", .wire = "packed:4", .bucket = 16},
        gq::named::description{
            .norm = "power-of-two:linf", .levels = "exponential:7", .wire = "packed:4", .bucket = 64},
        gq::named::description{.norm = "fixed:1.5", .levels = "uniform:7", .wire = "packed:4"}}) {
    gq::any_quantizer const op = gq::named::make(words);
    measured const m = encode(op, x, 400);
    double const expected = ad::quantizer_error(op)(x);
    EXPECT_NEAR(m.mean, expected, 5.5 * m.deviation + 1e-6 * expected) << words.norm;
  }
}

TEST(QuantizerError, scales_by_the_square_and_is_zero_for_zeros) {
  std::vector<float> x = values(300), y = x;
  gq::any_quantizer const op = gq::named::make({.levels = "uniform:7", .bucket = 64});
  ad::quantizer_error const error(op);
  for (float& v : y) v *= 0x1p-100F;
  EXPECT_EQ(error(y), error(x) * 0x1p-200);
  std::fill(y.begin(), y.end(), 0.0F);
  EXPECT_EQ(error(y), 0);
  EXPECT_EQ(error({}), 0);
  x[200] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(static_cast<void>(error(x)), gq::non_finite_error);
  std::vector<float> const two{2, 1};
  gq::any_quantizer const fixed = gq::named::make({.norm = "fixed:1.5", .levels = "uniform:7"});
  EXPECT_THROW(static_cast<void>(ad::quantizer_error(fixed)(two)), gq::configuration_error);
}

/// A rotation gains on a layer of heavy tails and loses on a sparse one, at the same bytes: the errors say which.
TEST(QuantizerError, tells_where_a_rotation_pays) {
  gq::named::description words;
  words.norm = "local:inf";
  words.levels = "uniform:7";
  words.wire = "packed:4";
  words.bucket = 1024;
  gq::any_quantizer const plain = gq::named::make(words), turned = gq::rotated{plain, 1024};
  auto const of = ad::quantizers({plain, turned});
  std::mt19937 draw(5);
  std::vector<float> heavy(8192), sparse(8192);
  for (std::size_t i = 0; i < heavy.size(); ++i) {
    double const u = (draw() + 1.0) * 0x1p-32;
    heavy[i] =
        static_cast<float>((draw() % 2 == 0 ? 1 : -1) * std::pow(u, -1.0 / 3));  // Pareto, as Student's t(3)
    sparse[i] = i % 64 == 0 ? static_cast<float>(std::cos(static_cast<double>(i))) : 0.0F;
  }
  gq::adapt::model_layout model;
  model.add("layer", {8192});
  auto const on_heavy = of(model[0], heavy), on_sparse = of(model[0], sparse);
  EXPECT_EQ(on_heavy[0].cost, on_heavy[1].cost);
  EXPECT_LT(on_heavy[1].error, on_heavy[0].error / 2);
  EXPECT_GT(on_sparse[1].error, on_sparse[0].error);
  measured const expected = encode(turned, heavy, 100);
  EXPECT_NEAR(on_heavy[1].error, expected.mean, 0.15 * expected.mean);
  gq::any_quantizer const own = gq::operators::eden<4>();
  measured const eden = encode(own, heavy, 20);
  EXPECT_NEAR(ad::quantizers({own})(model[0], heavy)[0].error, eden.mean, 0.15 * eden.mean);
  EXPECT_LT(eden.mean, expected.mean / 2);
}

TEST(Quantizers, give_a_candidate_for_each_operator_with_the_bytes_of_its_frame) {
  ad::model_layout model;
  model.add("a", {300}).add("none", {0}).add("bias", {10});
  ad::gradient_accumulator sum(model);
  sum.add(values(310));
  std::vector<gq::any_quantizer> const operators{
      gq::named::make({.levels = "uniform:1", .wire = "packed:2", .bucket = 128}),
      gq::named::make({.levels = "uniform:7", .wire = "packed:4", .bucket = 128})};
  ad::choice_table const table =
      ad::measure(sum, ad::quantizers(operators), [](ad::layer const& l) { return l.size != 10; });
  ASSERT_EQ(table[0].size(), 2U);
  for (std::size_t c = 0; c < 2; ++c) {
    gq::vector_codec codec(operators[c], {}, gq::frame_checksum::none);
    EXPECT_EQ(table[0][c].cost, static_cast<double>(codec.frame_bytes(300)));
    EXPECT_EQ(table[0][c].error, ad::quantizer_error(operators[c])(sum.of(0)));
    EXPECT_EQ(table[1][c].error, 0);
    EXPECT_EQ(table[1][c].cost, 0);
  }
  EXPECT_EQ(table[2].size(), 1U);
  EXPECT_EQ(table[2][0].cost, 40);
  EXPECT_THROW(static_cast<void>(ad::quantizers({})), gq::configuration_error);
}

}  // namespace
