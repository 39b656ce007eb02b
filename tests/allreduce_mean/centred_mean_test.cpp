// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Averaging around midpoints: the same bits everywhere, unbiased, of the variance of the range, exact for equal
///        values; and what is not finite.

#include "tests/support/cases.hpp"

#include <globalq/centred_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>
#include <compose/operators.hpp>

#include <algorithm>
#include <limits>

namespace gq = globalq;
using namespace support;

namespace {

template <class T>
using vectors = std::vector<std::vector<T>>;

template <class T>
vectors<T> around(double offset, int n, std::size_t d) {
  vectors<T> x(static_cast<std::size_t>(n), std::vector<T>(d));
  for (int r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i)
      x[static_cast<std::size_t>(r)][i] =
          value_from<T>(offset * (r + 1) + to_double(value_at<float>(input::normal, 31, r, n, i, d)));
  return x;
}

/// What all workers hold after a call.
/// @param sends_all  whether as many bytes must be sent as the plan says
template <class T>
vectors<T> results(vectors<T> const& x, std::string const& words, std::string const& schedule,
                   std::uint64_t bucket, std::uint64_t step = 3, bool sends_all = false) {
  vectors<T> y(x.size());
  std::vector<std::uint64_t> sent(x.size());
  std::uint64_t planned = 0;
  gq::any_quantizer const op = compose::make(compose::read_operator(words).words);
  gq::transport::threads cluster{static_cast<int>(x.size()), {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::centred_mean mean{workers, op, gq::schedule::any{schedule}, bucket, {.seed = 5}};
    y[r].resize(x[r].size());
    std::uint64_t const before = workers.bytes_sent();
    mean(x[r], y[r], step);
    sent[r] = workers.bytes_sent() - before;
    if (r == 0) planned = mean.plan(x[r].size(), gq::dtype_of<T>::value).bytes_sent;
    auto in_place = x[r];
    mean(in_place, step);
    EXPECT_TRUE(same_bytes(in_place, y[r]));
  });
  for (auto const& each : y) EXPECT_TRUE(same_bytes(each, y[0])) << words << " on " << schedule;
  // nothing more is sent where all midpoints, or all that is left, are zero
  std::uint64_t const most = *std::max_element(sent.begin(), sent.end());
  if (sends_all)
    EXPECT_EQ(most, planned) << words << " on " << schedule;
  else
    EXPECT_LE(most, planned) << words << " on " << schedule;
  return y;
}

template <class T>
class CentredMean : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(CentredMean, value_types);

TYPED_TEST(CentredMean, all_workers_hold_the_same_bits_near_the_mean) {
  constexpr std::size_t d = 1000;
  for (int n : {1, 2, 3, 5})
    for (auto const& [words, schedule] :
         std::vector<std::pair<std::string, std::string>>{{"cgx:4,scale=min-max", "sra"},
                                                          {"qsdp:8", "allgather"},
                                                          {"global-uniform", "ring"},
                                                          {"global-exponential", "tree"},
                                                          {"cgx:4", "ring"}})
      for (std::uint64_t bucket : {0U, 1U, 100U, 128U, 5000U}) {
        auto const x = around<TypeParam>(8, n, d);
        auto const y = results(x, words, schedule, bucket, 3, bucket != 1)[0];
        double worst = 0;
        for (std::size_t i = 0; i < d; ++i) {
          double mean = 0;
          for (auto const& v : x) mean += to_double(v[i]) / n;
          worst = std::max(worst, std::abs(to_double(y[i]) - mean));
        }
        // values lie within 2 of the midpoint; exponential sums and encodings double them at most; and the type rounds
        EXPECT_LE(worst, (words == "global-exponential" ? 4.0 : 2.0) + 0.25) << words << " bucket " << bucket;
        if (bucket == 1) {  // only the midpoints are left, averaged in float32
          EXPECT_LE(worst, 24 * std::max(std::exp2(-traits<TypeParam>::digits), 0x1p-20)) << words;
        }
      }
}

TYPED_TEST(CentredMean, equal_values_of_a_bucket_come_out_as_they_are) {
  for (int n : {1, 2, 4})
    for (std::size_t d : {1U, 64U, 700U}) {
      vectors<TypeParam> x(static_cast<std::size_t>(n), std::vector<TypeParam>(d));
      for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < d; ++i)
          x[static_cast<std::size_t>(r)][i] =
              value_from<TypeParam>((r - 1) * 4.0 + static_cast<double>(i / 64));
      auto const y = results(x, "cgx:2,scale=min-max", "sra", 64)[0];
      for (std::size_t i = 0; i < d; ++i) {
        double mean = 0;
        for (auto const& v : x) mean += to_double(v[i]) / n;
        EXPECT_EQ(to_double(y[i]), mean) << i;
      }
    }
}

TYPED_TEST(CentredMean, nan_and_infinity_of_one_worker_reach_all) {
  for (auto bits : {traits<TypeParam>::nan, traits<TypeParam>::infinity}) {
    auto x = around<TypeParam>(1, 3, 300);
    x[1][250] = from_word<TypeParam>(bits);
    for (auto const& y : results(x, "cgx:4,scale=min-max", "sra", 128))
      for (TypeParam v : y) ASSERT_EQ(word_of(v), traits<TypeParam>::nan);
    gq::any_quantizer const op = compose::make(compose::read_operator("cgx").words);
    gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{60}}};
    cluster.run([&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      gq::centred_mean mean{workers, op, gq::schedule::ring{}, 128, {.non_finite = gq::non_finite::error}};
      auto mine = x[r];
      EXPECT_THROW(mean(mine, 1), gq::non_finite_error);
      EXPECT_TRUE(same_bytes(mine, x[r]));
    });
  }
}

TEST(CentredMeanRules, it_is_unbiased_and_has_the_variance_of_the_grid_between_minimum_and_maximum) {
  constexpr int n = 3, steps = 400;
  constexpr std::size_t d = 256, bucket = 64;
  auto const x = around<float>(50, n, d);
  std::vector<double> mean(d, 0.0), error(d, 0.0), exact(d, 0.0);
  for (std::size_t first = 0; first < d; first += bucket)
    for (auto const& v : x) {
      auto const [low, high] = std::minmax_element(v.begin() + static_cast<std::ptrdiff_t>(first),
                                                   v.begin() + static_cast<std::ptrdiff_t>(first + bucket));
      double const gap =
          (static_cast<double>(*high) - static_cast<double>(*low)) / 15;  // 16 levels, both ends
      for (std::size_t i = first; i < first + bucket; ++i) {
        double const at = (static_cast<double>(v[i]) - static_cast<double>(*low)) / gap,
                     part = at - std::floor(at);
        exact[i] += gap * gap * part * (1 - part) / (n * n);
        mean[i] += static_cast<double>(v[i]) / n;
      }
    }
  double square = 0, expected = 0;
  for (std::uint64_t k = 0; k < steps; ++k) {
    auto const y = results(x, "cgx:4,bucket=64,scale=min-max", "allgather", bucket, k)[0];
    for (std::size_t i = 0; i < d; ++i) {
      double const e = static_cast<double>(y[i]) - mean[i];
      error[i] += e / steps;
      square += e * e / steps;
    }
  }
  for (std::size_t i = 0; i < d; ++i) {
    expected += exact[i];
    // 6 deviations of an average; values near 150 are rounded to float32: x - m, the midpoints' mean, the result
    EXPECT_LE(std::abs(error[i]), 6 * std::sqrt(exact[i] / steps) + 4 * 0x1p-16) << i;
  }
  EXPECT_NEAR(square / expected, 1.0, 6 * std::sqrt(2.0 / (steps * d / 4)));
}

TEST(CentredMeanRules, the_whole_range_of_float32_and_float64_works) {
  float const most = std::numeric_limits<float>::max();
  vectors<float> const x = {{-most, most, 0, most}, {most, -most, 1, most}};
  auto const y = results(x, "qsdp:8", "allgather", 0)[0];
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_LE(std::abs(y[i] / most - (x[0][i] / 2 + x[1][i] / 2) / most), 1.0F / 64) << i;
  double const wide = std::numeric_limits<double>::max();
  vectors<double> const z = {{-wide, wide, 0}, {wide, -wide, 1}};
  auto const w = results(z, "cgx:8", "allgather", 0)[0];
  for (double v : w) EXPECT_LE(std::abs(v / wide), 1.0 / 64);
  vectors<float> const tiny = {{0x1p-149F, 0x1p-149F}, {0x1p-149F, 0x1p-149F}};
  auto const same = results(tiny, "cgx:4", "sra", 0)[0];
  for (float v : same) EXPECT_EQ(v, 0x1p-149F);
}

TEST(CentredMeanRules, short_vectors_and_disagreement) {
  for (std::size_t d : {0U, 1U, 3U}) results(around<float>(1, 3, d), "cgx:4,scale=min-max", "ring", 128);
  gq::any_quantizer const op = compose::make(compose::read_operator("cgx").words);
  gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    bool const odd = workers.rank() == 1;
    gq::centred_mean lengths{workers, op, gq::schedule::ring{}, 128};
    std::vector<float> x(odd ? 300 : 301, 1.5F), y(7);
    auto const before = x;
    EXPECT_THROW(lengths(x, 1), gq::disagreement_error);
    EXPECT_THROW(lengths(x, y, 1), gq::configuration_error);
    // midpoints of other buckets: found before anything is written
    gq::centred_mean buckets{workers, op, gq::schedule::ring{}, odd ? 128U : 64U};
    x.assign(1000, 1.0F);
    x[0] = 2.0F;
    auto const kept = x;
    EXPECT_THROW(buckets(x, 1), gq::disagreement_error);
    EXPECT_EQ(x, kept);
  });
}

}  // namespace
