// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Coordinates that are sent without looking: send_first and rand_k.

#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/schedule/ring.hpp>
#include <globalq/schedule/tree.hpp>

#include <cmath>
#include <map>

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

TEST(SendFirst, the_first_values_of_each_layer_are_averaged_and_the_others_kept) {
  gq::adapt::model_layout model;
  model.add("a", {10}).add_at(12, "b", {3, 3}).add("c", {1});
  for (int n : {1, 2, 5}) {
    auto const x = cases::inputs(n, 22);
    auto const got = cases::run(x, [&] { return cp::send_first{model, {.gamma = 4}}; });
    cases::expect_same_means(got);
    auto const mean = cases::mean_of(x);
    for (std::size_t i = 0; i < 22; ++i) {
      if (i == 10 || i == 11) {  // between layers
        EXPECT_EQ(got.mean[0][i], -77.0F);
        EXPECT_EQ(got.rest[0][i], -77.0F);
        continue;
      }
      bool const sent = i < 3 || (i >= 12 && i < 15) || i == 21;
      // sums of integers are exact; one product is rounded
      EXPECT_NEAR(got.mean[0][i], sent ? mean[i] : 0.0, 1e-4);
      EXPECT_EQ(got.rest[0][i], sent ? 0.0F : x[0][i]);
    }
  }
}

TEST(SendFirst, all_worlds_and_lengths_give_the_mean_of_the_messages) {
  cases::for_worlds(
      [](auto layers) {
        return cp::send_first{layers, {.gamma = 3}};
      },
      [](auto const& x, auto const& got) { cases::expect_mean_of_messages(x, got, 1e-4); });
}

TEST(SendFirst, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::send_first{layers, {}, settings}; });
  EXPECT_THROW((cp::send_first{cases::one_layer(3), {.gamma = 0.5}}), gq::configuration_error);
  EXPECT_THROW((cp::send_first{cases::one_layer(3), {.gamma = std::nan("")}}), gq::configuration_error);
}

TEST(SendFirst, sums_beyond_the_range_of_float32_are_means_within_it) {
  std::vector<vector> const x(3, vector(5, 3.0e38F));
  auto const got = cases::run(x, [] { return cp::send_first{cases::one_layer(5), {.gamma = 1}}; });
  for (float v : got.mean[1]) EXPECT_NEAR(v, 3.0e38F, 1e32F);
}

TEST(RandK, chooses_k_places_without_repetition_and_all_sets_equally_often) {
  // 5 choose 2 = 10 sets; 20,000 draws: each set 2,000 times, standard deviation sqrt(20000 * .1 * .9) = 42.4
  std::vector<std::uint64_t> bitmap(1);
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> seen;
  for (std::uint64_t step = 0; step < 20000; ++step) {
    std::uint64_t out[2];
    cp::detail::choose({11, step, 0, gq::random::purpose::select}, 3, 5, 2, bitmap, 100, out);
    ASSERT_LT(out[0], out[1]);
    ASSERT_GE(out[0], 100U);
    ASSERT_LT(out[1], 105U);
    ++seen[{out[0], out[1]}];
  }
  EXPECT_EQ(seen.size(), 10U);
  for (auto const& [set, times] : seen) EXPECT_NEAR(times, 2000, 5 * 42.4);
  EXPECT_EQ(bitmap[0], 0U);
}

TEST(RandK, every_k_of_a_length_is_chosen_exactly) {
  for (std::uint64_t d : {1UL, 63UL, 64UL, 65UL, 1000UL})
    for (std::uint64_t k = 1; k <= d; k += 1 + d / 9) {
      std::vector<std::uint64_t> bitmap(gq::divide_up<std::uint64_t>(d, 64));
      std::vector<std::uint64_t> out(k + 1, ~0UL);
      cp::detail::choose({5, k, 1, gq::random::purpose::select}, 0, d, k, bitmap, 0, out.data());
      for (std::uint64_t i = 0; i < k; ++i) ASSERT_LT(out[i], i + 1 < k ? out[i + 1] : d);
      EXPECT_EQ(out[k], ~0UL);
    }
}

/// Mean over steps of a function of a call's results, for one worker's vector.
TEST(RandK, unbiased_with_a_variance_of_d_over_k_minus_1) {
  std::uint64_t const d = 60, k = 12;
  auto const x = cases::inputs(1, d, 5);
  double const norm = cases::norm2(x[0]);
  int const calls = 4000;
  std::vector<double> sums(d);
  double squares = 0, fourth = 0;
  support::on_threads(1, [&](auto& workers) {
    cp::rand_k c{cases::one_layer(d), {.density = 0.2}};
    EXPECT_EQ(c.count(), k);
    vector mean(d), rest(d);
    for (int t = 0; t < calls; ++t) {
      c.reduce(workers, x[0], mean, rest, static_cast<std::uint64_t>(t));
      double here = 0;
      for (std::size_t i = 0; i < d; ++i) {
        ASSERT_EQ(mean[i] == 0 || mean[i] == 5 * x[0][i], true);
        ASSERT_EQ(rest[i], x[0][i] - mean[i]);
        sums[i] += static_cast<double>(mean[i]);
        here += static_cast<double>(rest[i]) * static_cast<double>(rest[i]);
      }
      squares += here;
      fourth += here * here;
    }
  });
  // each value is 5 x with probability 1/5: standard deviation 2 |x|
  for (std::size_t i = 0; i < d; ++i)
    EXPECT_NEAR(sums[i] / calls, static_cast<double>(x[0][i]),
                5 * 2 * std::abs(static_cast<double>(x[0][i])) / std::sqrt(calls) + 1e-9);
  double const average = squares / calls, deviation = std::sqrt((fourth / calls - average * average) / calls);
  EXPECT_NEAR(average, 4 * norm, 5 * deviation);
  EXPECT_LT(deviation, 0.05 * norm);
}

TEST(RandK, without_scaling_a_share_of_1_minus_k_over_d_is_left) {
  std::uint64_t const d = 60;
  vector const x = cases::values(d, 9);
  double left = 0, squares = 0;
  int const calls = 4000;
  support::on_threads(1, [&](auto& workers) {
    cp::rand_k c{cases::one_layer(d), {.density = 0.2, .unbiased = false}};
    vector mean(d), rest(d);
    for (int t = 0; t < calls; ++t) {
      c.reduce(workers, x, mean, rest, static_cast<std::uint64_t>(t));
      for (std::size_t i = 0; i < d; ++i) ASSERT_EQ(mean[i] + rest[i], x[i]);
      double const here = cases::norm2(rest) / cases::norm2(x);
      left += here;
      squares += here * here;
    }
  });
  double const average = left / calls;
  EXPECT_NEAR(average, 0.8, 5 * std::sqrt((squares / calls - average * average) / calls));
}

TEST(RandK, contracts_where_the_expected_rest_is_shorter_than_the_vector) {
  // unbiased: d/k - 1 times the square, so k of 10 above 5; of layers the worst one decides
  gq::adapt::model_layout two;
  two.add("a", {1}).add("b", {10}).add("none", {0});
  for (auto const& [density, wanted] : {std::pair{0.1, false}, {0.5, false}, {0.6, true}, {1.0, true}}) {
    EXPECT_EQ((cp::rand_k{two, {.density = density}}.contracts()), wanted) << density;
    bool const of_all = wanted || density == 0.5;  // 6 of 11
    EXPECT_EQ((cp::rand_k{two, {.density = density, .scope = cp::scope::whole}}.contracts()), of_all);
    EXPECT_TRUE((cp::rand_k{two, {.density = density, .unbiased = false}}.contracts()));
  }
}

TEST(RandK, all_worlds_lengths_and_scopes_give_the_mean_of_the_messages) {
  for (bool shared : {true, false})
    for (auto scope : {cp::scope::layer, cp::scope::whole})
      cases::for_worlds(
          [&](auto layers) {
            return cp::rand_k{layers, {.density = 0.3, .scope = scope, .unbiased = false, .shared = shared}};
          },
          [&](auto const& x, auto const& got) {
            cases::expect_mean_of_messages(x, got, 1e-3);
            if (x[0].empty()) return;
            std::size_t others = 0, kept = 0;  // of worker 0, and of the last one
            for (std::size_t i = 0; i < x[0].size(); ++i) {
              kept += got.rest[0][i] != 0 ? 1 : 0;
              others += (got.rest[0][i] == 0) != (got.rest.back()[i] == 0) ? 1 : 0;
            }
            if (x[0].size() > 1000) {
              EXPECT_NEAR(static_cast<double>(kept), 0.7 * static_cast<double>(x[0].size()),
                          0.01 * static_cast<double>(x[0].size()));  // some values are zero by themselves
              if (x.size() > 1) {
                EXPECT_EQ(others > x[0].size() / 10, !shared);
              }
            }
          });
}

TEST(RandK, any_schedule_gives_sums_of_integers_the_same_bits) {
  for (int n : {2, 3, 5}) {
    auto const x = cases::inputs(n, 5000);
    auto const a = cases::run(x, [] { return cp::rand_k{cases::one_layer(5000), {.density = 0.5}}; });
    auto const b = cases::run(x, [] {
      return cp::rand_k{
          cases::one_layer(5000), {.density = 0.5}, {.chunk_values = 256}, gq::schedule::ring{}};
    });
    auto const c = cases::run(x, [] {
      return cp::rand_k{cases::one_layer(5000), {.density = 0.5}, {}, gq::schedule::tree{}};
    });
    EXPECT_TRUE(cases::same_bits(a.mean[0], b.mean[0]));
    EXPECT_TRUE(cases::same_bits(a.mean[0], c.mean[0]));
    cases::expect_same_means(b);
    cases::expect_same_means(c);
  }
}

TEST(RandK, the_whole_scope_chooses_out_of_layers_only) {
  gq::adapt::model_layout model;
  model.add_at(50, "later", {40}).add_at(3, "first", {20}).add_at(30, "none", {0}).add_at(23, "next", {4});
  cp::rand_k c{model, {.density = 0.5, .scope = cp::scope::whole}};
  std::vector<int> seen(90);
  for (std::uint64_t step = 0; step < 2000; ++step) {
    auto const places = c.coordinates(step, 0);
    ASSERT_EQ(places.size(), 32U);
    ASSERT_TRUE(std::is_sorted(places.begin(), places.end()));
    for (std::uint64_t p : places) ++seen.at(p);
  }
  for (std::size_t i = 0; i < 90; ++i) {
    bool const inside = (i >= 3 && i < 27) || i >= 50;
    EXPECT_NEAR(seen[i], inside ? 1000 : 0, inside ? 5 * 22.4 : 0) << i;
  }
}

TEST(RandK, scaled_values_beyond_float32_are_not_finite_on_all_workers) {
  std::vector<vector> const x(2, vector(100, 1.0e38F));
  for (bool shared : {true, false}) {
    auto const got = cases::run(x, [&] {
      return cp::rand_k{cases::one_layer(100), {.density = 0.05, .shared = shared}};
    });
    for (auto o : got.outcome) EXPECT_EQ(o, cp::outcome::not_finite);
    for (float v : got.mean[1]) EXPECT_EQ(std::bit_cast<std::uint32_t>(v), 0x7fc00000U);
    for (float v : got.rest[1]) EXPECT_EQ(v, -77.0F);
  }
}

TEST(RandK, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::rand_k{layers, {}, settings}; });
  cases::expect_manners([](auto layers, auto settings) {
    return cp::rand_k{layers, {.shared = false}, settings};
  });
  for (double bad : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_THROW((cp::rand_k{cases::one_layer(3), {.density = bad}}), gq::configuration_error);
  auto const texts = support::complaints<gq::disagreement_error>(2, [](auto& workers) {
    cp::rand_k c{cases::one_layer(10), {.density = workers.rank() == 0 ? 0.1 : 0.2}};
    vector x(10), mean(10);
    c.reduce(workers, x, mean, {}, 0);
  });
  for (auto const& t : texts) EXPECT_NE(t.find("the operator"), t.npos) << t;
}

}  // namespace
