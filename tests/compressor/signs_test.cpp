// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One bit a value: majority votes, and 1-bit SGD's two means a bucket.

#include <globalq/compressor/error_feedback.hpp>
#include <globalq/compressor/one_bit.hpp>
#include <globalq/compressor/sign_sgd.hpp>

#include <cmath>

#include "tests/compressor/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::compressor;
using cases::vector;

namespace {

TEST(Signs, loops_written_out_give_the_bits_of_the_portable_ones) {
  for (std::uint64_t d : {0UL, 1UL, 15UL, 16UL, 63UL, 64UL, 65UL, 300UL}) {
    vector x = cases::values(d, 3, 2);  // a fifth of them zeros
    for (std::uint64_t i = 0; i < d; i += 7) x[i] = -0.0F;
    std::vector<std::uint64_t> a(d / 64 + 1), b(d / 64 + 1);
    cp::detail::pack_signs(x.data(), d, a.data());
    cp::detail::pack_signs_portable(x.data(), d, b.data());
    EXPECT_EQ(a, b);
    for (std::uint64_t i = 0; i < d; ++i) EXPECT_EQ((a[i / 64] >> (i % 64) & 1) != 0, x[i] < 0);
    vector s(d, 1.0F), t(d, 1.0F);
    cp::detail::add_signed(a.data(), d, 0.25F, -3.0F, s.data());
    cp::detail::add_signed_portable(a.data(), d, 0.25F, -3.0F, t.data());
    EXPECT_EQ(s, t);
    for (std::uint64_t i = 0; i < d; ++i) EXPECT_EQ(s[i], x[i] < 0 ? -2.0F : 1.25F);
  }
}

TEST(Signs, a_ballot_counts_any_number_of_votes) {
  for (std::uint32_t voters : {1U, 2U, 3U, 4U, 7U, 8U, 100U}) {
    cp::detail::ballot votes;  // bit i is set by the first i voters
    for (std::uint32_t v = 0; v < voters; ++v) votes.add(v < 64 ? ~std::uint64_t{0} << v << 1 : 0);
    for (std::uint32_t half = 0; half <= voters; ++half) {
      auto const r = votes.against(half);
      for (std::uint32_t i = 0; i < 64; ++i) {
        std::uint32_t const count = std::min(i, voters);
        ASSERT_EQ((r.more >> i & 1) != 0, count > half);
        ASSERT_EQ((r.equal >> i & 1) != 0, count == half);
      }
    }
  }
}

TEST(SignSgd, the_majority_wins_for_every_combination_of_signs) {
  // up to 7 workers: coordinate c holds the signs that are the bits of c / 8, eight times over
  for (int n = 1; n <= 7; ++n) {
    std::uint64_t const d = 8UL << n;
    std::vector<vector> x(static_cast<std::size_t>(n), vector(d));
    for (std::uint64_t i = 0; i < d; ++i)
      for (int r = 0; r < n; ++r)
        x[static_cast<std::size_t>(r)][i] = (i / 8 >> r & 1) != 0 ? -2.0F : (i % 2 != 0 ? 0.0F : 0.5F);
    auto const got = cases::run(
        x, [&] { return cp::sign_sgd{cases::one_layer(d)}; }, 5);
    cases::expect_same_means(got);
    int ties = 0, negative = 0;
    for (std::uint64_t i = 0; i < d; ++i) {
      int const below = std::popcount(i / 8);
      ASSERT_EQ(std::abs(got.mean[0][i]), 1.0F);
      if (2 * below == n) {
        ++ties;
        negative += got.mean[0][i] < 0 ? 1 : 0;
      } else {
        ASSERT_EQ(got.mean[0][i]<0, 2 * below> n) << n << " " << i;
      }
      ASSERT_EQ(got.rest[0][i], x[0][i] - (x[0][i] < 0 ? -1.0F : 1.0F));
    }
    // coins: binomial
    EXPECT_NEAR(negative, ties / 2.0, 5 * std::sqrt(ties) / 2);
  }
}

TEST(SignSgd, coins_change_with_the_step_and_are_shared) {
  std::vector<vector> x(2, vector(640, 1.0F));
  x[1].assign(640, -1.0F);
  vector first;
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto const got = cases::run(
        x, [] { return cp::sign_sgd{cases::one_layer(640)}; }, step);
    cases::expect_same_means(got);
    if (step == 0) first = got.mean[0];
    int same = 0;
    for (std::size_t i = 0; i < 640; ++i) same += got.mean[0][i] == first[i] ? 1 : 0;
    EXPECT_TRUE(step == 0 ? same == 640 : std::abs(same - 320) < 5 * 12.7);
  }
}

TEST(SignSgd, all_worlds_and_lengths_agree_with_a_count) {
  cases::for_worlds([](auto layers) { return cp::sign_sgd{layers}; },
                    [](auto const& x, auto const& got) {
                      for (std::size_t i = 0; i < x[0].size(); ++i) {
                        std::size_t below = 0;
                        for (auto const& v : x) below += v[i] < 0 ? 1 : 0;
                        if (2 * below == x.size()) continue;
                        ASSERT_EQ(got.mean[0][i], 2 * below > x.size() ? -1.0F : 1.0F);
                      }
                    });
}

TEST(SignSgd, scaled_signs_have_the_mean_magnitude_of_their_layer) {
  gq::adapt::layout model;
  model.add("a", {3}).add_at(10, "b", {70});
  std::vector<vector> x(2, vector(80));
  x[0] = cases::values(80, 1);
  for (std::size_t i = 0; i < 80; ++i) x[1][i] = 3 * x[0][i];
  auto const got = cases::run(x, [&] { return cp::sign_sgd{model, {.scale = cp::sign_scale::layers}}; });
  double a = 0, b = 0;
  for (std::size_t i = 0; i < 3; ++i) a += std::abs(static_cast<double>(x[0][i])) / 3;
  for (std::size_t i = 10; i < 80; ++i) b += std::abs(static_cast<double>(x[0][i])) / 70;
  for (std::size_t i = 0; i < 80; ++i) {
    if (i >= 3 && i < 10) {
      EXPECT_EQ(got.mean[1][i], -77.0F);
      continue;
    }
    double const scale = i < 3 ? a : b;
    EXPECT_NEAR(got.mean[1][i], x[0][i] < 0 ? -2 * scale : 2 * scale, 1e-3);
    EXPECT_NEAR(got.rest[1][i], static_cast<double>(x[1][i]) - (x[0][i] < 0 ? -3 * scale : 3 * scale), 1e-3);
  }
}

TEST(SignSgd, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::sign_sgd{layers, {}, settings}; });
}

TEST(OneBit, a_bucket_becomes_the_means_of_both_signs_which_no_other_two_numbers_beat) {
  vector const x{1, 3, -1, 5, -7, 0, 4, 4, 4, -2, -6, -1};
  auto const got = cases::run({x}, [] { return cp::one_bit{cases::one_layer(12), {.bucket = 6}}; });
  vector const wanted{2.25F, 2.25F, -4, 2.25F, -4, 2.25F, 4, 4, 4, -3, -3, -3};
  EXPECT_EQ(got.mean[0], wanted);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got.rest[0][i], x[i] - wanted[i]);
  double const least = cases::norm2(got.rest[0]);
  for (float up : {-0.1F, 0.1F})
    for (float down : {-0.1F, 0.0F, 0.1F}) {
      vector other = got.rest[0];
      for (std::size_t i = 0; i < 12; ++i) other[i] -= x[i] < 0 ? down : up;
      EXPECT_GT(cases::norm2(other), least);
    }
}

TEST(OneBit, all_worlds_and_lengths_give_the_mean_of_the_messages) {
  for (std::uint64_t bucket : {0UL, 1UL, 100UL, 512UL})
    cases::for_worlds(
        [&](auto layers) {
          return cp::one_bit{layers, {.bucket = bucket}};
        },
        [](auto const& x, auto const& got) {
          cases::expect_mean_of_messages(x, got, 1e-3);
          for (std::size_t r = 0; r < x.size(); ++r) EXPECT_LE(cases::norm2(got.rest[r]), cases::norm2(x[r]));
        });
}

TEST(OneBit, a_bucket_of_nothing_is_the_rows_of_each_matrix) {
  gq::adapt::layout model;
  model.add("w", {4, 65}).add("b", {10}).add("none", {0, 5});
  EXPECT_EQ((cp::one_bit{model, {.bucket = 0}}.frame_bytes()), 8 * (4 * 2 + 1) + 8 * 5U);
}

TEST(OneBit, sums_beyond_float32_are_means_within_it) {
  std::vector<vector> const x(3, vector(7, 3.0e38F));
  auto const got = cases::run(x, [] { return cp::one_bit{cases::one_layer(7)}; });
  for (float v : got.mean[2]) EXPECT_NEAR(v, 3.0e38F, 1e32F);
}

TEST(OneBit, descent_with_feedback_goes_where_descent_without_it_does_not) {
  // one bucket with coordinates of very different sizes: the means of both signs hide the small ones
  std::uint64_t const d = 40;
  auto const distance = [&](bool feedback) {
    double left = 0;
    support::on_threads(2, [&](auto& workers) {
      vector w(d), g(d), mean(d);
      cp::one_bit c{cases::one_layer(d)};
      cp::error_feedback ef{cp::one_bit{cases::one_layer(d)}};
      for (std::uint64_t t = 0; t < 3000; ++t) {
        // the workers' targets differ, so gradients do not vanish
        for (std::size_t i = 0; i < d; ++i) {
          float const target = i % 8 == 0 ? 20.0F : 1.0F;
          g[i] =
              0.005F * (w[i] - target + (workers.rank() == 0 ? 4.0F : -4.0F) * (i % 3 == 0 ? 1.0F : -0.5F));
        }
        if (feedback)
          ef.reduce(workers, g, mean, t);
        else
          c.reduce(workers, g, mean, {}, t);
        for (std::size_t i = 0; i < d; ++i) w[i] -= mean[i];
      }
      if (workers.rank() == 0)
        for (std::size_t i = 0; i < d; ++i)
          left += std::pow(static_cast<double>(w[i]) - (i % 8 == 0 ? 20.0 : 1.0), 2);
    });
    return std::sqrt(left / static_cast<double>(d));
  };
  double const with = distance(true), without = distance(false);
  EXPECT_LT(with, 0.1);
  EXPECT_GT(without, 10 * with);
}

TEST(OneBit, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::one_bit{layers, {}, settings}; });
}

}  // namespace
