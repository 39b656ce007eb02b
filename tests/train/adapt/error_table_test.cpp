// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Error tables: accumulated gradients, Top-K and low rank against their definitions, and errors of one's own.

#include <globalq/train/adapt/error_table.hpp>
#include <globalq/train/adapt/gradient_accumulator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace ad = globalq::adapt;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<float> values(std::size_t n, std::uint32_t seed = 1) {
  std::mt19937 draw(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(static_cast<std::int32_t>(draw()) >> 8) * 0x1p-20F;
  return x;
}

TEST(GradientAccumulator, adds_layers_and_leaves_gaps_alone) {
  ad::model_layout model;
  model.add("a", {2}).add_at(3, "b", {2});
  ad::gradient_accumulator sum(model);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(sum.add(std::vector<float>{1, 2, nan, 3, 4}));
  EXPECT_TRUE(sum.add(std::vector<double>{10, 20, 1e300, 30, 40}));
  EXPECT_THAT(sum.of(0), ElementsAre(11, 22));
  EXPECT_THAT(sum.of(1), ElementsAre(33, 44));
  EXPECT_EQ(sum.norm(1), 55);
  EXPECT_THAT(sum.norms(), ElementsAre(std::sqrt(11.0 * 11 + 22 * 22), 55));
  EXPECT_EQ(sum.steps(), 2U);
  sum.clear();
  EXPECT_THAT(sum.of(1), ElementsAre(0, 0));
  EXPECT_EQ(sum.steps(), 0U);
  EXPECT_THROW(sum.add(std::vector<float>(4)), globalq::configuration_error);
}

TEST(GradientAccumulator, leaves_a_step_out_that_is_not_finite) {
  ad::model_layout model;
  model.add("a", {3});
  ad::gradient_accumulator sum(model);
  float const inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  sum.add(std::vector<float>{1, most, 3});
  EXPECT_FALSE(sum.add(std::vector<float>{1, 2, std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_FALSE(sum.add(std::vector<float>{-inf, 2, 3}));
  EXPECT_FALSE(sum.add(std::vector<float>{1, most, 3}));    // the sum overflows
  EXPECT_FALSE(sum.add(std::vector<double>{1e300, 2, 3}));  // no float
  EXPECT_THAT(sum.of(0), ElementsAre(1, most, 3));
  EXPECT_EQ(sum.steps(), 1U);
  EXPECT_EQ(sum.skipped(), 4U);
}

TEST(GradientAccumulator, adds_layers_one_by_one) {
  ad::model_layout model;
  model.add("a", {2}).add("b", {3});
  ad::gradient_accumulator sum(model);
  std::vector<float> const b{1, 2, 3}, bad{1, std::numeric_limits<float>::quiet_NaN(), 3};
  std::vector<double> const a{10, 20};
  EXPECT_TRUE(sum.add(1, std::span(b)));
  EXPECT_TRUE(sum.add(0, std::span(a)));
  EXPECT_TRUE(sum.add(1, std::span(b)));
  EXPECT_FALSE(sum.add(1, std::span(bad)));
  EXPECT_THAT(sum.of(0), ElementsAre(10, 20));
  EXPECT_THAT(sum.of(1), ElementsAre(2, 4, 6));
  EXPECT_EQ(sum.steps(), 2U);
  EXPECT_EQ(sum.skipped(), 1U);
  for (std::size_t layer : {0U, 2U}) EXPECT_THROW(sum.add(layer, std::span(b)), globalq::configuration_error);
  sum.clear();
  EXPECT_EQ(sum.steps(), 0U);
  EXPECT_THAT(sum.of(1), ElementsAre(0, 0, 0));
}

TEST(TopK, error_is_the_sum_of_the_squares_left_out) {
  for (std::size_t n : {1U, 2U, 7U, 1000U}) {
    std::vector<float> const x = values(n);
    std::vector<double> squares;
    for (float v : x) squares.push_back(static_cast<double>(v) * static_cast<double>(v));
    std::sort(squares.begin(), squares.end());
    std::vector<std::uint64_t> kept;
    for (std::uint64_t k : {std::size_t{3}, std::size_t{0}, n, n / 2, std::size_t{1}, n / 2})
      kept.push_back(std::min<std::uint64_t>(k, n));
    std::vector<double> const errors = ad::top_k_errors(x, kept);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      double expected = 0;
      for (std::size_t j = 0; j < n - kept[i]; ++j) expected += squares[j];
      EXPECT_NEAR(errors[i], expected, expected * 1e-13) << n << " " << kept[i];
      if (kept[i] == n) {
        EXPECT_EQ(errors[i], 0);
      }
    }
  }
}

TEST(TopK, keeps_at_least_one_value_and_never_one_too_many_by_rounding) {
  EXPECT_EQ(ad::kept_values(100, 0.07), 7U);  // 0.07 * 100 is 7.000000000000001
  EXPECT_EQ(ad::kept_values(100, 0.071), 8U);
  EXPECT_EQ(ad::kept_values(100, 1e-9), 1U);
  EXPECT_EQ(ad::kept_values(100, 1), 100U);
  EXPECT_EQ(ad::kept_values(0, 0.5), 0U);
  EXPECT_EQ(ad::kept_values(1000003, 0.001), 1001U);
}

TEST(TopK, gives_a_candidate_for_each_density) {
  ad::model_layout model;
  model.add("a", {4}).add("none", {0}).add("bias", {2});
  ad::gradient_accumulator sum(model);
  sum.add(std::vector<float>{1, -4, 2, -3, 5, 6});
  ad::choice_table const table =
      ad::measure(sum, ad::top_k({0.25, 0.5, 1}), [](ad::layer const& l) { return l.name != "bias"; });
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(table.name(0), "a");
  ASSERT_EQ(table[0].size(), 3U);
  EXPECT_EQ(table[0][0].cost, 8);
  EXPECT_EQ(table[0][0].error, 1 + 4 + 9);
  EXPECT_EQ(table[0][1].cost, 16);
  EXPECT_EQ(table[0][1].error, 1 + 4);
  EXPECT_EQ(table[0][2].error, 0);
  EXPECT_EQ(table[1][0].cost, 0);
  EXPECT_EQ(table[1][0].error, 0);
  ASSERT_EQ(table[2].size(), 1U);
  EXPECT_EQ(table[2][0].cost, 8);
  EXPECT_EQ(table[2][0].error, 0);
  EXPECT_THROW(static_cast<void>(ad::top_k({0.5, 1.5})), globalq::configuration_error);
  EXPECT_THROW(static_cast<void>(ad::top_k({0})), globalq::configuration_error);
  EXPECT_THROW(static_cast<void>(ad::top_k({})), globalq::configuration_error);
}

/// u_k v_k^T with singular values s_k: columns of a cosine basis are orthonormal.
std::vector<float> matrix(std::size_t rows, std::size_t columns, std::vector<double> const& singular) {
  auto const basis = [](std::size_t n, std::size_t i, std::size_t k) {
    return std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
           std::cos(3.14159265358979323846 * (static_cast<double>(i) + 0.5) * static_cast<double>(k) /
                    static_cast<double>(n));
  };
  std::vector<float> m(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double x = 0;
      for (std::size_t k = 0; k < singular.size(); ++k)
        x += singular[k] * basis(rows, i, k) * basis(columns, j, k);
      m[i * columns + j] = static_cast<float>(x);
    }
  return m;
}

TEST(LowRank, errors_are_the_squares_of_the_singular_values_left_out) {
  std::vector<double> singular;
  for (int k = 0; k < 12; ++k) singular.push_back(100 * std::pow(0.6, k));
  for (auto const& [rows, columns] : {std::pair<std::size_t, std::size_t>{40, 30}, {30, 40}, {12, 100}}) {
    std::vector<float> const m = matrix(rows, columns, singular);
    std::vector<double> const errors = ad::detail::low_rank_errors(m, rows, columns, 6);
    double rest = 0, whole = 0;
    for (double s : singular) whole += s * s;
    for (double s : singular) rest += s * s;
    for (std::size_t k = 0; k <= 6; ++k) {
      // no rank-k matrix is nearer; five steps shrink what lies beyond by 0.6^10 for the last direction, squared
      EXPECT_GE(errors[k], rest * (1 - 1e-5) - whole * 1e-12) << k;
      EXPECT_LE(errors[k], rest * (k < 6 ? 1.01 : 1.05) + whole * 1e-12) << k;
      rest -= singular[k] * singular[k];
    }
  }
}

TEST(LowRank, of_matrices_of_that_rank_is_exact_and_of_all_ranks_zero) {
  std::vector<float> const m = matrix(20, 50, {5, 3});
  std::vector<double> const errors = ad::detail::low_rank_errors(m, 20, 50, 30);
  EXPECT_NEAR(errors[0], 34, 1e-4);
  EXPECT_NEAR(errors[1], 9, 1e-4);
  for (std::size_t k = 2; k < 20; ++k) EXPECT_NEAR(errors[k], 0, 34 * 1e-10);  // float32 rounds the input
  for (std::size_t k = 20; k <= 30; ++k) EXPECT_EQ(errors[k], 0);
  std::vector<float> const zero(100);
  EXPECT_THAT(ad::detail::low_rank_errors(zero, 10, 10, 2), ElementsAre(0, 0, 0));
}

TEST(LowRank, keeps_numbers_whose_squares_no_float_holds) {
  std::vector<float> tiny = matrix(8, 8, {5, 3}), large = tiny;
  for (float& x : tiny) x *= 0x1p-100F;
  for (float& x : large) x *= 0x1p100F;
  EXPECT_NEAR(ad::detail::low_rank_errors(tiny, 8, 8, 1)[1] * 0x1p200, 9, 1e-3);
  EXPECT_NEAR(ad::detail::low_rank_errors(large, 8, 8, 1)[1] * 0x1p-200, 9, 1e-3);
}

TEST(LowRank, candidates_that_save_nothing_are_float32) {
  ad::model_layout model;
  model.add("fc", {20, 50}).add("bias", {20});
  ad::gradient_accumulator sum(model);
  std::vector<float> all = matrix(20, 50, {5, 3});
  all.resize(1020, 1.0F);
  sum.add(all);
  ad::choice_table const table = ad::measure(sum, ad::low_rank({1, 2, 14, 15}));
  EXPECT_EQ(table[0][0].cost, 4 * 70);
  EXPECT_NEAR(table[0][0].error, 9, 1e-4);
  EXPECT_EQ(table[0][2].cost, 4 * 14 * 70);
  EXPECT_EQ(table[0][3].cost, 4 * 1000);
  EXPECT_EQ(table[0][3].error, 0);
  EXPECT_EQ(table[1][0].cost, 80);  // a vector is a matrix of one row: a rank has one value more
  EXPECT_EQ(table[1][0].error, 0);
  EXPECT_THROW(static_cast<void>(ad::low_rank({0})), globalq::configuration_error);
}

TEST(Sensitivity, replaces_errors_and_keeps_costs) {
  ad::model_layout model;
  model.add("a", {4}).add("b", {4});
  ad::gradient_accumulator sum(model);
  sum.add(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  auto const by = [](ad::layer const& l, std::size_t c, std::span<float const> x) {
    return (l.name == "a" ? 100.0 : 10.0) * static_cast<double>(x.size()) / static_cast<double>(c + 1);
  };
  ad::choice_table const table = ad::measure(sum, ad::with_sensitivity(ad::top_k({0.25, 0.5}), by));
  EXPECT_EQ(table[0][0].error, 400);
  EXPECT_EQ(table[0][1].error, 200);
  EXPECT_EQ(table[1][0].error, 40);
  EXPECT_EQ(table[1][1].cost, 16);
  auto const bad = [](ad::layer const&, std::size_t, std::span<float const>) { return -1.0; };
  try {
    static_cast<void>(ad::measure(sum, ad::with_sensitivity(ad::top_k({0.25}), bad)));
    FAIL();
  } catch (globalq::configuration_error const& e) {
    EXPECT_THAT(e.what(), HasSubstr("candidate 0 of a has the error -1"));
  }
}

}  // namespace
