// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief CGX's rules: clusters, linear maps and Bayesian search; budgets are kept or refused.

#include <globalq/train/adapt/cgx.hpp>
#include <globalq/train/adapt/lgreco.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace ad = globalq::adapt;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

struct model {
  ad::choice_table table;
  std::vector<ad::layer_point> points;
};

/// Layers of a few kinds, 2 to 8 bits, and biases that have no choice.
model random_model(std::uint32_t seed, std::size_t layers, std::size_t candidates = 7) {
  std::mt19937 draw(seed);
  model m;
  for (std::size_t l = 0; l < layers; ++l) {
    double const size = std::ldexp(1.0, 8 + static_cast<int>(draw() % 12)),
                 norm = std::ldexp(1.0 + draw() % 8, static_cast<int>(draw() % 4));
    m.points.push_back({size, norm});
    if (l % 4 == 3) {
      m.table.add({{4 * size, 0}}, "bias" + std::to_string(l));
      continue;
    }
    std::vector<ad::candidate> of;
    for (std::size_t b = 2; b < 2 + candidates; ++b)
      of.push_back({size * static_cast<double>(b) / 8, norm * norm * std::pow(4.0, -static_cast<double>(b))});
    m.table.add(of, "fc" + std::to_string(l));
  }
  return m;
}

TEST(Kmeans, separates_groups_that_lie_apart) {
  std::vector<std::array<double, 2>> x;
  for (int i = 0; i < 30; ++i) {
    double const jitter = 0.01 * (i % 7);
    x.push_back(i % 3 == 0   ? std::array<double, 2>{jitter, jitter}
                : i % 3 == 1 ? std::array<double, 2>{1 - jitter, 0.1}
                             : std::array<double, 2>{0.5, 1 - jitter});
  }
  std::vector<std::size_t> const of = ad::detail::kmeans(x, 3);
  for (std::size_t i = 3; i < 30; ++i) EXPECT_EQ(of[i], of[i % 3]);
  EXPECT_EQ(std::set<std::size_t>(of.begin(), of.end()).size(), 3U);
}

TEST(Kmeans, leaves_no_cluster_empty_and_ends_at_a_fixed_point) {
  std::mt19937 draw(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::array<double, 2>> x;
    std::size_t const n = draw() % 40;
    for (std::size_t i = 0; i < n; ++i)
      x.push_back({draw() % 5 * 0.25, draw() % 5 * 0.25});  // many are equal
    std::size_t const k = 1 + draw() % 8;
    std::vector<std::size_t> const of = ad::detail::kmeans(x, k);
    std::size_t const clusters = std::set<std::size_t>(of.begin(), of.end()).size();
    EXPECT_LE(clusters, k);
    std::set<std::array<double, 2>> const distinct(x.begin(), x.end());
    EXPECT_LE(clusters, distinct.size());
    std::vector<std::array<double, 3>> sum(clusters, {0, 0, 0});
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_LT(of[i], clusters);  // numbered without gaps
      sum[of[i]][0] += x[i][0], sum[of[i]][1] += x[i][1], sum[of[i]][2] += 1;
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto const distance = [&](std::size_t c) {
        return std::hypot(x[i][0] - sum[c][0] / sum[c][2], x[i][1] - sum[c][1] / sum[c][2]);
      };
      for (std::size_t c = 0; c < clusters; ++c) EXPECT_LE(distance(of[i]), distance(c) + 1e-12);
    }
  }
}

TEST(BitsAndBuckets, pair_few_bits_with_large_buckets) {
  using p = ad::bits_and_bucket;
  EXPECT_THAT(ad::bits_and_buckets(2, 6, 64, 1024),
              ElementsAre(p{2, 1024}, p{3, 512}, p{4, 256}, p{5, 128}, p{6, 64}));
  EXPECT_THAT(ad::bits_and_buckets(4, 4, 128, 128), ElementsAre(p{4, 128}));
  EXPECT_THAT(ad::bits_and_buckets(2, 4, 100, 1000), ElementsAre(p{2, 1000}, p{3, 256}, p{4, 128}));
  EXPECT_THROW(static_cast<void>(ad::bits_and_buckets(4, 3, 64, 64)), globalq::configuration_error);
  EXPECT_THROW(static_cast<void>(ad::bits_and_buckets(2, 4, 128, 64)), globalq::configuration_error);
}

TEST(CgxKmeans, compresses_large_layers_of_small_gradients_most) {
  ad::choice_table table;
  std::vector<ad::layer_point> points;
  for (int l = 0; l < 6; ++l) {
    bool const embedding = l < 2;
    points.push_back({embedding ? 1e6 + l : 1e4 + l, embedding ? 1.0 : 10.0});
    double const e = points.back().norm * points.back().norm;
    table.add({{points.back().size * 2, e / 16},
               {points.back().size * 4, e / 256},
               {points.back().size * 8, e / 65536}});
  }
  points.push_back({10, 100});
  table.add({{40, 0}}, "bias");
  double const budget = ad::budget_of(table, ad::uniform_choice(table, 1));
  ad::selection const s = ad::cgx_kmeans{.clusters = 2}(table, points, budget);
  EXPECT_THAT(s.choices, ElementsAre(0U, 0U, 2U, 2U, 2U, 2U, 0U));  // 8 bits for the small ones pay for 2
}

TEST(CgxLinear, sorts_layers_by_norm_over_size) {
  ad::choice_table table;
  std::vector<ad::layer_point> const points{{100, 30}, {100, 10}, {1000, 20}, {100, 20}, {0, 0}};
  for (std::size_t l = 0; l < 5; ++l) table.add({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}});
  // without errors the cheapest map is the lowest candidate everywhere
  EXPECT_THAT(ad::cgx_linear{}(table, points, 0).choices, ElementsAre(0U, 0U, 0U, 0U, 0U));
  // an error that only the full range keeps, and nothing cheaper: ratios ascend as 4, 2, 1, 3, 0
  ad::choice_table strict;
  std::vector<std::uint32_t> const place{4, 2, 1, 3, 0};
  for (std::size_t l = 0; l < 5; ++l) {
    std::vector<ad::candidate> of;
    for (std::uint32_t c = 0; c < 5; ++c) of.push_back({1.0 + c, c < place[l] ? 1.0 : 0.0});
    strict.add(of);
  }
  EXPECT_EQ(ad::cgx_linear{}(strict, points, 0).choices, place);
}

TEST(CgxRules, keep_every_budget_that_one_of_their_maps_keeps) {
  int below_reference = 0;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    model const m = random_model(seed, 40);
    auto const four_bits = ad::uniform_choice(m.table, 2);
    for (double alpha : {0.01, 0.5, 1.0, 3.0}) {
      double const budget = ad::budget_of(m.table, four_bits, alpha);
      ad::selection const all[] = {ad::cgx_kmeans{}(m.table, m.points, budget),
                                   ad::cgx_linear{}(m.table, m.points, budget),
                                   ad::cgx_bayes{.evaluations = 16}(m.table, m.points, budget)};
      ad::selection const best = ad::lgreco{.most_states = 4096}(m.table, budget);
      for (ad::selection const& s : all) {
        EXPECT_TRUE(m.table.within(s.choices, budget));
        EXPECT_EQ(s.cost, m.table.cost(s.choices));
        EXPECT_GE(s.cost, best.lower_bound);
        if (alpha >= 1) {
          EXPECT_LE(s.cost, m.table.cost(four_bits));  // the uniform map is one of them
        }
        below_reference += alpha == 1 && s.cost < m.table.cost(four_bits);
      }
    }
  }
  EXPECT_GT(below_reference, 15);
}

/// Errors are multiples of each other, so that 3 bits everywhere just fill a budget of four times the error of 4 bits.
TEST(CgxRules, cost_no_less_than_lgreco_where_a_uniform_choice_fills_the_budget) {
  for (std::size_t layers : {100U, 200U, 400U, 600U, 1000U}) {
    std::mt19937 draw(static_cast<std::uint32_t>(layers));
    model m;
    for (std::size_t l = 0; l < layers; ++l) {
      double const size = static_cast<double>(100 + draw() % 1000000), norm = 1e-3 * (1 + draw() % 1000);
      m.points.push_back({size, norm});
      std::vector<ad::candidate> of;
      for (int b = 2; b <= 8; ++b) of.push_back({size * b / 8, norm * norm * std::pow(4.0, -b)});
      m.table.add(of);
    }
    double const budget = ad::budget_of(m.table, ad::uniform_choice(m.table, 2), 4);
    ASSERT_TRUE(m.table.within(ad::uniform_choice(m.table, 1), budget));
    ad::selection const best = ad::lgreco{}(m.table, budget);
    EXPECT_LE(best.cost, m.table.cost(ad::uniform_choice(m.table, 1))) << layers;
    EXPECT_LE(best.cost, ad::cgx_kmeans{}(m.table, m.points, budget).cost) << layers;
    EXPECT_LE(best.cost, ad::cgx_linear{}(m.table, m.points, budget).cost) << layers;
    EXPECT_LE(best.cost, ad::cgx_bayes{.evaluations = 16}(m.table, m.points, budget).cost) << layers;
    // and where there is no room to search at all
    for (auto how : {ad::lgreco::method::search, ad::lgreco::method::grid})
      EXPECT_LE((ad::lgreco{.how = how, .steps = 1, .most_states = 16}(m.table, budget).cost),
                m.table.cost(ad::uniform_choice(m.table, 1)));
  }
}

TEST(CgxBayes, costs_no_more_than_k_means_of_its_clusters_or_of_as_many_as_candidates) {
  int default_is_better = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    model const m = random_model(seed, 30);
    double const budget = ad::budget_of(m.table, ad::uniform_choice(m.table, 2));
    double const by_default = ad::cgx_kmeans{}(m.table, m.points, budget).cost;
    for (std::uint32_t clusters : {1U, 2U, 5U}) {
      double const same = ad::cgx_kmeans{.clusters = clusters}(m.table, m.points, budget).cost;
      double const cost =
          ad::cgx_bayes{.clusters = clusters, .evaluations = 8}(m.table, m.points, budget).cost;
      EXPECT_LE(cost, same) << seed;
      EXPECT_LE(cost, by_default) << seed;
      default_is_better += by_default < same;
    }
  }
  EXPECT_GT(default_is_better, 20);
}

TEST(CgxBayes, with_every_choice_evaluated_finds_the_cheapest) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    model const m = random_model(seed, 12, 3);
    double const budget = ad::budget_of(m.table, ad::uniform_choice(m.table, 1), 1.2);
    std::size_t clusters = 0;
    ad::detail::open_layers const open = ad::detail::open_of(m.table, m.points, "");
    auto const cluster = ad::detail::ordered_clusters(open, m.points, 3, clusters);
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t code = 0; code < 27; ++code) {
      std::uint32_t const digit[] = {code % 3, code / 3 % 3, code / 9};
      std::vector<std::uint32_t> c(m.table.size(), 0);
      for (std::size_t i = 0; i < open.layer.size(); ++i) c[open.layer[i]] = digit[cluster[i]];
      if (m.table.within(c, budget)) least = std::min(least, m.table.cost(c));
    }
    // three candidates: the k-means rule has three clusters too, and knows nothing cheaper
    EXPECT_EQ(ad::cgx_bayes({.clusters = 3, .evaluations = 64})(m.table, m.points, budget).cost, least)
        << seed;
  }
}

TEST(CgxBayes, finds_more_than_chance_and_the_same_each_time) {
  // 7^5 choices, 40 evaluations. Chance: the cheapest of as many random choices that keep the budget.
  int better = 0, rounds = 0;
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    model const m = random_model(seed + 100, 40);
    double const budget = ad::budget_of(m.table, ad::uniform_choice(m.table, 2));
    ad::cgx_bayes const search{.evaluations = 40, .seed = seed};
    ad::selection const s = search(m.table, m.points, budget);
    EXPECT_EQ(s.choices, search(m.table, m.points, budget).choices);
    std::size_t k = 0;
    ad::detail::open_layers const open = ad::detail::open_of(m.table, m.points, "");
    auto const cluster = ad::detail::ordered_clusters(open, m.points, 5, k);
    std::mt19937 draw(seed);
    double chance = m.table.cost(ad::uniform_choice(m.table, 2));
    for (int i = 0; i < 40; ++i) {
      std::vector<std::uint32_t> digit, c(m.table.size(), 0);
      for (std::size_t j = 0; j < k; ++j) digit.push_back(draw() % 7);
      for (std::size_t j = 0; j < open.layer.size(); ++j) c[open.layer[j]] = digit[cluster[j]];
      if (m.table.within(c, budget)) chance = std::min(chance, m.table.cost(c));
    }
    EXPECT_LE(s.cost, ad::cgx_kmeans{.clusters = 5}(m.table, m.points, budget).cost);
    better += s.cost < chance;
    ++rounds;
  }
  EXPECT_GE(better, rounds - 1);
}

TEST(GaussianProcess, interpolates_and_expects_nothing_where_it_knows) {
  std::vector<std::vector<double>> x;
  std::vector<double> y;
  for (int i = 0; i <= 6; ++i) x.push_back({i / 6.0}), y.push_back(std::sin(3 * i / 6.0));
  ad::detail::gaussian_process const f(x, y);
  double const least = 0;  // sin is least at 0, which was seen
  for (auto const& p : x) EXPECT_LT(f.expected_improvement(p, least), 2e-3);
  // E max(0, c - f) with c far above is c - f(x): the mean between the points
  for (double t : {0.05, 0.4, 0.75})
    EXPECT_NEAR(100 - f.expected_improvement({t}, 100), std::sin(3 * t), 0.02);
}

TEST(CgxRules, refuse_with_numbers) {
  model m = random_model(1, 8);
  auto const refusal = [&](auto const& rule, double budget) -> std::string {
    try {
      static_cast<void>(rule(m.table, m.points, budget));
    } catch (globalq::configuration_error const& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(ad::cgx_kmeans{}, 1e-9),
              HasSubstr("cgx_kmeans: no choice meets the error budget 1e-09"));
  EXPECT_THAT(refusal(ad::cgx_linear{}, 1e-9), HasSubstr("cgx_linear: no choice meets"));
  EXPECT_THAT(refusal(ad::cgx_bayes{}, 1e-9), HasSubstr("cgx_bayes: no choice meets"));
  EXPECT_THROW(ad::bits_and_buckets(2, 8, 32, (std::uint64_t{1} << 48) + 1), globalq::configuration_error);
  EXPECT_THAT(refusal(ad::cgx_kmeans{}, -1), HasSubstr("the budget -1"));
  EXPECT_THAT(refusal(ad::cgx_bayes{.evaluations = 1}, 1), HasSubstr("1 evaluations"));
  m.points[2].norm = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal(ad::cgx_linear{}, 1), HasSubstr("fc2 has size"));
  m.points.pop_back();
  EXPECT_THAT(refusal(ad::cgx_kmeans{}, 1), HasSubstr("7 points for 8 layers"));
  m = random_model(1, 2);
  m.table.add({{1, 1}, {2, 0}}, "odd");
  m.points.push_back({1, 1});
  EXPECT_THAT(refusal(ad::cgx_kmeans{}, 1e9), HasSubstr("odd has 2 candidates and fc0 has 7"));
}

TEST(CgxRules, take_models_without_layers_or_without_a_choice) {
  std::vector<ad::layer_point> const one{{10, 1}};
  ad::choice_table fixed;
  fixed.add({{40, 0}});
  EXPECT_EQ(ad::cgx_kmeans{}({}, {}, 1).cost, 0);
  for (ad::selection const& s :
       {ad::cgx_kmeans{}(fixed, one, 0), ad::cgx_linear{}(fixed, one, 0), ad::cgx_bayes{}(fixed, one, 0)})
    EXPECT_EQ(s.cost, 40);
}

}  // namespace
