// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Sums by another operator: own values have the frames of the first one, means those of the second; the same bits on
///        all workers, unbiased, with the variance of both; refused where no such sums travel.

#include "tests/quantizer/checked_mean.hpp"

#include <globalq/named/operators.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/second_half.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;

namespace second_half_test {

using namespace support;

auto const two_bits = gq::operators::cgx<2>();
auto const four_bits = gq::operators::cgx<4, gq::rounding::nearest>();

template <class T>
std::vector<std::vector<T>> normals(int n, std::size_t d) {
  std::vector<std::vector<T>> x(static_cast<std::size_t>(n), std::vector<T>(d));
  for (int r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i)
      x[static_cast<std::size_t>(r)][i] = value_at<T>(input::normal, 77, r, n, i, d);
  return x;
}

template <class T>
class SecondHalf : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(SecondHalf, value_types);

/// The owner of a segment adds its own values to those in the frames of the others, and what it sends is the second
/// operator's encoding of the mean.
TYPED_TEST(SecondHalf, is_the_second_encoding_of_the_mean_of_the_first_ones) {
  constexpr std::uint64_t step = 3;
  for (int n : {1, 2, 3, 5, 8, 9})
    for (std::size_t d : {0U, 1U, 255U, 257U, 2000U}) {
      auto const x = normals<TypeParam>(n, d);
      auto const y = checked_mean(x, gq::second_half{two_bits, four_bits}, "sra", step);
      gq::vector_codec own{two_bits}, sums{four_bits};
      using decoded_type = std::conditional_t<std::is_same_v<TypeParam, double>, double, float>;
      std::vector<std::vector<decoded_type>> sent;
      for (int r = 0; r < n; ++r) {
        auto const k = static_cast<std::size_t>(r);
        std::vector<std::byte> frame(own.frame_bytes(d, gq::dtype_of<TypeParam>::value));
        gq::encoding_key const key{.seed = 5, .step = step, .worker = static_cast<std::uint32_t>(r)};
        own.encode(x[k], key, frame);
        std::vector<decoded_type> decoded(d);
        own.decode(frame, key, decoded);
        sent.push_back(decoded);
      }
      gq::partition const cut(d, n, gq::detail::grain_of(gq::second_half{two_bits, four_bits}.facts()), 0);
      for (int owner = 0; owner < n; ++owner) {
        gq::segment const part = cut.part(owner);
        std::vector<double> mean(part.count);
        for (std::size_t i = 0; i < part.count; ++i) {
          for (int r = 0; r < n; ++r)
            mean[i] += r == owner && n > 1
                           ? to_double(x[static_cast<std::size_t>(r)][part.first + i])
                           : static_cast<double>(sent[static_cast<std::size_t>(r)][part.first + i]);
          mean[i] /= n;
        }
        for (std::size_t b = 0; b < part.count; b += 128) {
          std::size_t const end = std::min<std::size_t>(part.count, b + 128);
          double most = 0;
          for (std::size_t i = b; i < end; ++i) most = std::max(most, std::abs(mean[i]));
          // half a gap of 7 levels; sums are added in float32, scales and results rounded to their types
          double const error = n == 1 ? 0 : most / 14,
                       rest = 8 * std::exp2(-traits<TypeParam>::digits) + 0x1p-18;
          for (std::size_t i = b; i < end; ++i)
            ASSERT_NEAR(to_double(y[0][part.first + i]), mean[i], error + rest)
                << n << ", " << d << ", " << i;
        }
      }
    }
}

/// Over independent steps, the mean of the errors vanishes, and their variance is that of two bits of n - 1 workers, divided
/// by n^2, and of one encoding of the mean.
TEST(SecondHalfRules, is_unbiased_with_the_variance_of_both) {
  constexpr int n = 4, steps = 4000;
  constexpr std::size_t d = 512;
  auto const x = normals<float>(n, d);
  std::vector<double> mean(d), error(d);
  double squares = 0;
  for (auto const& each : x)
    for (std::size_t i = 0; i < d; ++i) mean[i] += static_cast<double>(each[i]) / n;
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    gq::allreduce_mean call{
        workers, gq::second_half{two_bits, gq::operators::cgx<4>()}, gq::schedule::sra{}, {.seed = 8}};
    std::vector<float> y(d);
    for (std::uint64_t t = 0; t < steps; ++t) {
      call(x[static_cast<std::size_t>(workers.rank())], y, t);
      if (workers.rank() != 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        double const e = static_cast<double>(y[i]) - mean[i];
        error[i] += e / steps;
        squares += e * e / steps;
      }
    }
  });
  // own values: f (1 - f) gap^2 with one level; two segments of 256 values have owners, the others send both
  double expected = 0, most = 0;
  for (std::size_t i = 0; i < d; ++i) {
    std::size_t const owner = i / 256, b = i / 128 * 128;
    double v = 0;
    for (std::size_t r = 0; r < n; ++r) {
      if (r == owner) continue;
      double gap = 0;
      for (std::size_t k = b; k < b + 128; ++k) gap = std::max(gap, std::abs(static_cast<double>(x[r][k])));
      double const f = std::abs(static_cast<double>(x[r][i])) / gap;
      v += f * (1 - f) * gap * gap / (n * n);
    }
    expected += v;
    most = std::max(most, v);
  }
  // the second encoding adds at most gap^2 / 4 with 7 levels below the largest decoded mean, 3.5
  double const second = 0.25 * (3.5 / 7) * (3.5 / 7);
  EXPECT_GT(squares, expected * 1.001);
  EXPECT_LT(squares, expected * 1.01 + d * second);
  // five standard deviations of a mean of `steps` errors, and one in 3.5e6 for each of 512 values
  for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(error[i], 0, 5 * std::sqrt((most + second) / steps)) << i;
}

/// Shifts of buckets are counted by buckets, of which the halves have different ones: words of means have a key of their own.
TEST(SecondHalfRules, roundings_of_both_halves_are_independent) {
  constexpr int steps = 4000;
  auto const of = [](std::uint64_t bucket) {
    return gq::quantizer{gq::norm::local<gq::infinity>{bucket}, gq::levels::uniform<>{},
                         gq::rounding::random_shift<>{}, gq::wire::packed<4>{}};
  };
  std::vector<double> a(steps), b(steps);
  on_threads(2, std::chrono::seconds{60}, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::second_half{of(64), of(32)}, gq::schedule::sra{}, {.seed = 5}};
    auto const x = normals<float>(2, 512)[static_cast<std::size_t>(workers.rank())];
    std::vector<float> y(512);
    for (int t = 0; t < steps; ++t) {
      mean(x, y, static_cast<std::uint64_t>(t));
      if (workers.rank() != 0) continue;
      a[static_cast<std::size_t>(t)] = static_cast<double>(y[130]);  // bucket 4 of means, by owner 0
      b[static_cast<std::size_t>(t)] = static_cast<double>(y[260]);  // bucket 4 of worker 0's own values
    }
  });
  double mean_a = 0, mean_b = 0, ab = 0, aa = 0, bb = 0;
  for (std::size_t t = 0; t < steps; ++t) mean_a += a[t] / steps, mean_b += b[t] / steps;
  for (std::size_t t = 0; t < steps; ++t) {
    ab += (a[t] - mean_a) * (b[t] - mean_b);
    aa += (a[t] - mean_a) * (a[t] - mean_a);
    bb += (b[t] - mean_b) * (b[t] - mean_b);
  }
  EXPECT_LT(std::abs(ab / std::sqrt(aa * bb)), 5 / std::sqrt(steps));
}

/// More bits in the second half have less variance than two bits in both, and the plan says so.
TEST(SecondHalfRules, plans_know_both_halves) {
  gq::plan const both = gq::plan_for(two_bits, gq::schedule::sra{}, 4, 100'000),
                 more = gq::plan_for(gq::second_half{two_bits, gq::operators::cgx<4>()}, gq::schedule::sra{},
                                     4, 100'000);
  EXPECT_LT(more.theta, both.theta);
  // 3 frames of 2 bits and 3 of 4 bits, with 32 bits for 128 values each: 2.25 + 4.25 instead of 2 x 2.25
  EXPECT_NEAR(static_cast<double>(more.bytes_sent) / static_cast<double>(both.bytes_sent), 6.5 / 4.5, 0.01);
  // omega = B / 4 s^2 for both, or sqrt(B) / s
  double const first = std::sqrt(128.0), second = 128.0 / (4 * 49);
  EXPECT_NEAR(more.theta, (first + second * (4 + first)) / 4, 1e-9);
}

TEST(SecondHalfRules, works_inside_stages_and_with_a_tail_for_all_kinds_of_norms) {
  gq::any_quantizer const op = gq::second_half{two_bits, gq::operators::cgx<8>()};
  std::vector<gq::any_quantizer> const all = {
      gq::rotated{op, 256},
      gq::float32_tail{op},
      gq::centered{op},
      gq::second_half{gq::operators::cgx<8>(), gq::operators::qsgd<8>(100)},
      gq::second_half{gq::operators::cgx<8>(), gq::operators::qsgd<8>(0)},
      gq::second_half{gq::operators::cgx<8>(), gq::operators::nuqsgd<8>(5000)},
      gq::second_half{gq::operators::cgx<8>(), gq::operators::mxfp8()},
      gq::second_half{gq::operators::cgx<8>(), gq::operators::nvfp4()},
      gq::second_half{gq::operators::global_uniform<8>(), gq::operators::qsdp<8>()},
      gq::named::operator_of(gq::named::read_operator("cgx:8,second=8,tail=float32"))};
  for (int n : {1, 2, 3, 7})
    for (std::size_t d : {1U, 127U, 3000U})
      for (auto const& each : all) {
        auto const x = normals<float>(n, d);
        auto const y = checked_mean(x, each, "sra");
        double error = 0, size = 0;
        for (std::size_t i = 0; i < d; ++i) {
          double mean = 0;
          for (auto const& v : x) mean += static_cast<double>(v[i]) / n;
          double const e = static_cast<double>(y[0][i]) - mean;
          error += e * e;
          for (auto const& v : x) size += static_cast<double>(v[i]) * static_cast<double>(v[i]) / n;
        }
        EXPECT_LE(error, 4 * size) << each.facts().name << ", " << n << ", " << d;
      }
}

/// Values near the largest of their type, and sums of them, do not overflow on the way.
TEST(SecondHalfRules, sums_beyond_the_type_have_means_within_it) {
  constexpr std::size_t d = 700;
  auto const check = [&]<class T>(T largest) {
    std::vector<std::vector<T>> const x(3, std::vector<T>(d, largest));
    auto const y = checked_mean(x, gq::second_half{two_bits, four_bits}, "sra");
    for (T v : y[0]) ASSERT_NEAR(to_double(v) / to_double(largest), 1, 1e-6);
  };
  check(std::numeric_limits<float>::max());
  check(std::numeric_limits<double>::max() / 2);
  check(gq::float16(65504.0F));
}

TEST(SecondHalfRules, what_sends_no_such_sums_is_refused_with_a_remedy) {
  gq::any_quantizer const op = gq::second_half{two_bits, four_bits};
  for (char const* schedule : {"allgather", "ring", "tree", "native", "hierarchical:2"})
    for (std::string const& text : complaints<gq::configuration_error>(3, [&](auto& workers) {
           gq::allreduce_mean{workers, op, gq::schedule::any{schedule}};
         }))
      EXPECT_NE(text.find("only schedule sra"), std::string::npos) << text;
  for (std::string const& text : complaints<gq::configuration_error>(2, [&](auto& workers) {
         gq::quantizer const adds{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                                  gq::wire::int8{}, gq::reduce::sum{}};
         gq::allreduce_mean{workers, gq::second_half{adds, four_bits}, gq::schedule::sra{}};
       }))
    EXPECT_NE(text.find("use reduce::automatic"), std::string::npos) << text;
  EXPECT_THROW(gq::vector_codec{op}, gq::configuration_error);
  auto const refused = [](auto const& first, auto const& second, std::string const& words) {
    try {
      gq::second_half const made{first, second};
      FAIL() << words;
    } catch (gq::configuration_error const& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  refused(gq::rotated{two_bits, 64}, four_bits, "around it");
  refused(two_bits, gq::any_quantizer(gq::float32_tail{four_bits}), "around it");
  refused(op, four_bits, "around it");
  refused(two_bits, gq::any_quantizer(gq::operators::eden<4>()), "around it");
  refused(two_bits, gq::operators::global_uniform<8>(), "norm::local");
  refused(two_bits, gq::uncompressed{}, "wire packed");
  refused(gq::operators::qsgd<4, 2>(512, 7, gq::wire::elias<>{}), four_bits, "wire packed");
}

}  // namespace second_half_test
