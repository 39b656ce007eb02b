// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One bit a value: how bits are packed and counted, and majority votes.

#include <globalq/baseline/sign_sgd.hpp>

#include <cmath>

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
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
  gq::adapt::model_layout model;
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

}  // namespace
