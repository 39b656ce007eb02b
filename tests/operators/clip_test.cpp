// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Clipping at standard deviations: what it keeps, what it cuts, and that it is biased by exactly that.

#include "tests/support/cases.hpp"

#include <globalq/operator/clip.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/schedule/allgather.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace gq = globalq;
using namespace support;

namespace {

template <class T>
std::vector<T> bell(std::size_t d, std::uint64_t seed = 1) {
  std::vector<T> x(d);
  for (std::size_t i = 0; i < d; ++i) x[i] = value_at<T>(input::normal, seed, 0, 1, i, d);
  return x;
}

template <class T>
double deviation(std::vector<T> const& x, std::size_t first, std::size_t end) {
  double mean = 0, squares = 0, n = static_cast<double>(end - first);
  for (std::size_t i = first; i < end; ++i) mean += to_double(x[i]) / n;
  for (std::size_t i = first; i < end; ++i) squares += std::pow(to_double(x[i]) - mean, 2);
  return std::sqrt(squares / n);
}

template <class T>
class Clip : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(Clip, value_types);

TYPED_TEST(Clip, values_beyond_c_sigma_become_c_sigma_and_all_others_stay) {
  for (std::size_t d : {1U, 7U, 8U, 300U, 4096U, 10000U})
    for (std::uint64_t bucket : {0U, 1U, 100U, 5000U}) {
      auto const x = bell<TypeParam>(d);
      auto y = x;
      gq::clip_deviations(y, 1.5, bucket);
      std::size_t const width = bucket == 0 ? d : bucket;
      std::size_t cut = 0;
      for (std::size_t first = 0; first < d; first += width) {
        std::size_t const end = std::min(first + width, d);
        // sums of d doubles in another order: relative errors of at most d 2^-53 each
        double const limit = 1.5 * deviation(x, first, end), loose = limit * 1e-11;
        double const coarse = limit * std::exp2(-traits<TypeParam>::digits);  // of the type
        for (std::size_t i = first; i < end; ++i) {
          double const v = to_double(x[i]), w = to_double(y[i]);
          if (std::abs(v) <= limit - loose) {
            EXPECT_EQ(v, w) << i;
          } else if (std::abs(v) >= limit + loose) {
            EXPECT_NEAR(w, std::copysign(limit, v), loose + coarse) << i;
            ++cut;
          }
        }
      }
      if (d >= 300 && (bucket == 0 || bucket >= 100)) {
        // the sum of four uniform numbers lies beyond 1.5 sigma = 0.866 with probability 0.1340: below 6 deviations off
        double const n = static_cast<double>(d);
        EXPECT_NEAR(static_cast<double>(cut) / n, 0.134, 6 * std::sqrt(0.134 * 0.866 / n) + 0.02);
      }
    }
}

TYPED_TEST(Clip, vectors_that_are_not_finite_stay_as_they_are) {
  for (auto bits : {traits<TypeParam>::nan, traits<TypeParam>::infinity}) {
    auto x = bell<TypeParam>(300);
    x[17] = from_word<TypeParam>(bits);
    auto y = x;
    gq::clip_deviations(y, 0.5);
    EXPECT_TRUE(same_bytes(x, y));
    gq::clip_deviations(y, 0.5, 100);  // the other buckets are clipped
    EXPECT_EQ(word_of(y[17]), word_of(x[17]));
    EXPECT_EQ(std::memcmp(y.data(), x.data(), 100 * sizeof x[0]), 0);
    EXPECT_NE(std::memcmp(y.data() + 100, x.data() + 100, 100 * sizeof x[0]), 0);
  }
  std::vector<TypeParam> none;
  gq::clip_deviations(none, 2.5);
  std::vector<TypeParam> zeros(10);
  gq::clip_deviations(zeros, 2.5);
  for (auto const& v : zeros) EXPECT_EQ(to_double(v), 0);
}

TEST(ClipRules, the_bits_do_not_depend_on_threads) {
  auto serial = bell<float>(50000), parallel = serial;
  gq::clip_deviations(serial, 1.0, 20000, Kokkos::Serial{});
  gq::clip_deviations(parallel, 1.0, 20000);
  EXPECT_TRUE(same_bytes(serial, parallel));
}

TEST(ClipRules, a_limit_must_be_a_positive_number) {
  auto x = bell<float>(10);
  for (double c : {0.0, -1.0, double{NAN}, double{INFINITY}})
    EXPECT_THROW(gq::clip_deviations(x, c), gq::configuration_error) << c;
}

TEST(ClipRules, ternary_codes_of_clipped_vectors_have_less_variance_and_a_bias) {
  // the largest magnitude is 8 sigma: one value in a bell; clipped at 2.5 sigma, ternary levels are a third as far
  auto x = bell<float>(2000);
  x[1000] = 5.0F;
  auto clipped = x;
  gq::clip_deviations(clipped, 2.5);
  auto const variance = [](std::vector<float> const& v) {  // spec 5: sum of N |v| - v^2
    double top = 0, sum = 0;
    for (float a : v) top = std::max(top, std::abs(static_cast<double>(a)));
    for (float a : v) sum += std::abs(static_cast<double>(a)) * (top - std::abs(static_cast<double>(a)));
    return sum;
  };
  EXPECT_LT(variance(clipped), variance(x) / 3);
  gq::vector_codec codec(gq::operators::terngrad());
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  std::vector<float> y(x.size());
  constexpr int steps = 2000;
  double sum = 0, total = 0;
  for (std::uint64_t k = 0; k < steps; ++k) {
    codec.encode(clipped, {5, k, 0}, frame);
    codec.decode(frame, {5, k, 0}, y);
    sum += static_cast<double>(y[1000]) / steps;
    for (std::size_t i = 0; i < y.size(); ++i)
      total += std::pow(static_cast<double>(y[i]) - static_cast<double>(clipped[i]), 2) / steps;
  }
  // the largest value is the norm, which is always hit: what is lost is lost for good
  EXPECT_FLOAT_EQ(static_cast<float>(sum), clipped[1000]);
  EXPECT_LT(sum, 0.4 * 5.0);
  // the sum over 2,000 values and steps of squared errors, each at most 4 times its mean on average
  EXPECT_NEAR(total / variance(clipped), 1.0, 6 * std::sqrt(4.0 / (steps * 2000.0 / 4)));
}

}  // namespace
