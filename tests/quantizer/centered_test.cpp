// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Averaging around midpoints: the same bits everywhere, unbiased, of the variance of the range, exact for equal
///        values; and what is not finite.

#include "tests/quantizer/checked_mean.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>
#include <globalq/named/operators.hpp>

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
template <class T>
vectors<T> results(vectors<T> const& x, std::string const& words, std::string const& schedule,
                   std::uint64_t bucket, std::uint64_t step = 3) {
  return checked_mean(x, gq::centered{gq::named::make(gq::named::read_operator(words).words), bucket},
                      schedule, step);
}

template <class T>
class Centered : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(Centered, value_types);

TYPED_TEST(Centered, all_workers_hold_the_same_bits_near_the_mean) {
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
        auto const y = results(x, words, schedule, bucket)[0];
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

TYPED_TEST(Centered, equal_values_of_a_bucket_come_out_as_they_are) {
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

TYPED_TEST(Centered, nan_and_infinity_of_one_worker_reach_all) {
  for (auto bits : {traits<TypeParam>::nan, traits<TypeParam>::infinity}) {
    auto x = around<TypeParam>(1, 3, 300);
    x[1][250] = from_word<TypeParam>(bits);
    for (auto const& y : results(x, "cgx:4,scale=min-max", "sra", 128))
      for (TypeParam v : y) ASSERT_EQ(word_of(v), traits<TypeParam>::nan);
    gq::any_quantizer const op = gq::centered{gq::named::make(gq::named::read_operator("cgx").words), 128};
    gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{60}}};
    cluster.run([&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      gq::allreduce_mean mean{workers, op, gq::schedule::any{"ring"}, {.non_finite = gq::non_finite::error}};
      auto mine = x[r];
      EXPECT_THROW(mean(mine, 1), gq::non_finite_error);
      EXPECT_TRUE(same_bytes(mine, x[r]));
    });
  }
}

TEST(CenteredRules, it_is_unbiased_and_has_the_variance_of_the_grid_between_minimum_and_maximum) {
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

TEST(CenteredRules, the_whole_range_of_float32_and_float64_works) {
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

TEST(CenteredRules, short_vectors_and_disagreement) {
  for (std::size_t d : {0U, 1U, 3U}) results(around<float>(1, 3, d), "cgx:4,scale=min-max", "ring", 128);
  gq::any_quantizer const op = gq::named::make(gq::named::read_operator("cgx").words);
  gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    bool const odd = workers.rank() == 1;
    auto const refused = [&](std::uint64_t bucket, auto x) {
      auto const before = x;
      gq::allreduce_mean mean{workers, gq::any_quantizer{gq::centered{op, bucket}},
                              gq::schedule::any{"ring"}};
      EXPECT_THROW(mean(x, 1), gq::disagreement_error);
      EXPECT_TRUE(same_bytes(x, before));
    };
    refused(128, std::vector<float>(odd ? 300 : 301, 1.5F));
    // midpoints of other buckets: of one vector for two workers with buckets of 60 and 70 came 126 and 51 once
    std::vector<float> x(1000, 1.0F);
    x[0] = 2.0F;
    refused(odd ? 128U : 64U, x);
    refused(odd ? 60U : 70U, x);
    // midpoints, or none; other types of values
    gq::allreduce_mean half{workers, odd ? op : gq::any_quantizer{gq::centered{op}},
                            gq::schedule::any{"ring"}};
    EXPECT_THROW(half(x, 1), gq::disagreement_error);
    odd ? refused(128, std::vector<gq::bfloat16>(10)) : refused(128, std::vector<float>(10));
  });
}

TEST(CenteredRules, a_group_has_the_bits_of_single_calls_where_nothing_is_encoded_again) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{60}}};
  gq::any_quantizer const op = gq::named::make(gq::named::read_operator("cgx:4,scale=min-max").words);
  auto const a = around<float>(20, 3, 700), b = around<float>(-4, 3, 129);
  auto const c = around<double>(1e5, 3, 300);
  auto const h = around<gq::float16>(3, 3, 257);
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::any{"allgather"}, {.seed = 5}};
    auto a1 = a[r], a2 = a[r], b1 = b[r], b2 = b[r];
    auto c1 = c[r], c2 = c[r];
    auto h1 = h[r], h2 = h[r];
    mean(gq::vector_group{}.add(a1).add(b1).add(c1).add(h1), 10);
    mean(a2, 10);
    mean(b2, 11);
    mean(c2, 12);
    mean(h2, 13);
    EXPECT_TRUE(same_bytes(a1, a2) && same_bytes(b1, b2) && same_bytes(c1, c2) && same_bytes(h1, h2));
  });
}

TEST(CenteredRules, a_short_last_bucket_may_stay_as_it_is) {
  gq::any_quantizer const op = gq::named::make(gq::named::read_operator("cgx:4").words);
  auto const x = around<float>(50, 3, 400);
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto y = x[static_cast<std::size_t>(workers.rank())];
    gq::any_quantizer const with_tail = gq::centered{gq::float32_tail{op}};
    gq::allreduce_mean mean{workers, with_tail, gq::schedule::any{"sra"}};
    mean(y, 1);
    for (std::size_t i = 384; i < y.size(); ++i)
      EXPECT_NEAR(y[i], (x[0][i] + x[1][i] + x[2][i]) / 3, 0x1p-16);
  });
  EXPECT_THROW(gq::float32_tail{gq::any_quantizer{gq::centered{op}}}, gq::configuration_error);
  EXPECT_THROW(gq::vector_codec{gq::any_quantizer{gq::centered{op}}}, gq::configuration_error);
  EXPECT_FALSE(gq::plan_for(gq::any_quantizer{gq::centered{op}}, gq::schedule::any{"native"}, 2, 100).fits);
}

/// A unit is for values around midpoints, whatever these are.
TEST(CenteredRules, a_fixed_scale_is_that_of_values_around_midpoints) {
  gq::any_quantizer const op = gq::named::make(
      gq::named::description{"fixed:4", "uniform:7", "stochastic", "packed:4", "requantize", 0});
  for (double spread : {3.0, 5.0}) {
    gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{60}}};
    cluster.run([&](auto& workers) {
      std::vector<float> x(300, 100.0F);
      if (workers.rank() == 1) x[7] += static_cast<float>(2 * spread);
      gq::allreduce_mean mean{workers, gq::any_quantizer{gq::centered{op}}, gq::schedule::any{"sra"}};
      if (spread > 4) {
        EXPECT_THROW(mean(x, 1), gq::configuration_error);
      } else {
        mean(x, 1);
      }
      EXPECT_NEAR(x[0], 100, 4);
      auto a = x, b = x;
      if (spread > 4) {
        EXPECT_THROW(mean(gq::vector_group{}.add(a).add(b), 1), gq::configuration_error);
      }
    });
  }
}

}  // namespace
