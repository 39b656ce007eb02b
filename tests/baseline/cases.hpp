// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Compressors on threads: vectors of integers, what every worker got, and what all must have in common.

#include <globalq/baseline/concept.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/golden/golden.hpp"
#include "tests/support/hash.hpp"
#include "tests/support/on_threads.hpp"

namespace cases {

namespace gq = globalq;
using vector = std::vector<float>;

/// Values that floats hold exactly, made without a division: the same under any flags.
inline vector values(std::uint64_t d, unsigned seed, int range = 1000) {
  std::mt19937 bits(seed);
  vector x(d);
  for (float& v : x)
    v = static_cast<float>(static_cast<int>(bits() % static_cast<unsigned>(2 * range + 1)) - range);
  return x;
}

inline std::vector<vector> inputs(int n, std::uint64_t d, unsigned seed = 1, int range = 1000) {
  std::vector<vector> x;
  for (int r = 0; r < n; ++r) x.push_back(values(d, seed + static_cast<unsigned>(r), range));
  return x;
}

/// What one call gave to the workers.
struct results {
  std::vector<vector> mean, rest;
  std::vector<gq::baseline::outcome> outcome;
};

/// make(): a compressor for each worker. One call of each.
template <class Make>
results run(std::vector<vector> const& x, Make const& make, std::uint64_t step = 0) {
  std::size_t const n = x.size();
  results got{std::vector<vector>(n), std::vector<vector>(n), std::vector<gq::baseline::outcome>(n)};
  support::on_threads(static_cast<int>(n), [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    auto c = make();
    static_assert(gq::baseline::Compressor<decltype(c), std::remove_cvref_t<decltype(workers)>>);
    got.mean[r].assign(x[r].size(), -77.0F);
    got.rest[r].assign(x[r].size(), -77.0F);
    got.outcome[r] = c.reduce(workers, x[r], got.mean[r], got.rest[r], step);
  });
  return got;
}

inline bool same_bits(vector const& a, vector const& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  return true;
}

inline void expect_same_means(results const& got) {
  for (vector const& m : got.mean) EXPECT_TRUE(same_bits(m, got.mean[0]));
}

inline double norm2(vector const& x) {
  double s = 0;
  for (float v : x) s += static_cast<double>(v) * static_cast<double>(v);
  return s;
}

inline std::vector<double> mean_of(std::vector<vector> const& x) {
  std::vector<double> m(x[0].size());
  for (vector const& v : x)
    for (std::size_t i = 0; i < m.size(); ++i)
      m[i] += static_cast<double>(v[i]) / static_cast<double>(x.size());
  return m;
}

/// @brief What every method that averages messages keeps: |mean_i - mean_r(x_r - rest_r)_i| <= tolerance.
inline void expect_mean_of_messages(std::vector<vector> const& x, results const& got, double tolerance) {
  auto const all = mean_of(x), left = mean_of(got.rest);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got.mean[0][i]), all[i] - left[i], tolerance) << "coordinate " << i;
}

/// One layer of all values.
inline gq::adapt::model_layout one_layer(std::uint64_t d) {
  gq::adapt::model_layout l;
  l.add("all", {d});
  return l;
}

/// Lengths around what blocks of work and tiles hold.
inline std::vector<std::uint64_t> lengths() { return {0, 1, 2, 255, 256, 257, 4099, 16384, 16385, 40009}; }

/// @brief What every compressor promises of disagreement and of values that are not finite.
/// @param make  make(layout, options)
template <class Make>
void expect_manners(Make const& make) {
  using gq::baseline::outcome;
  std::uint64_t const d = 300;
  float const bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (float b : bad)
    for (int who = 0; who < 3; ++who) {
      auto x = inputs(3, d);
      x[static_cast<std::size_t>(who)][d - 1] = b;
      auto const got = run(x, [&] { return make(one_layer(d), gq::options{}); });
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(got.outcome[r], outcome::not_finite);
        for (float v : got.mean[r]) ASSERT_EQ(std::bit_cast<std::uint32_t>(v), 0x7fc00000U);
        for (float v : got.rest[r]) ASSERT_EQ(v, -77.0F);
      }
      auto const texts = support::complaints<gq::non_finite_error>(3, [&](auto& workers) {
        auto c = make(one_layer(d), gq::options{.non_finite = gq::non_finite::error});
        vector mean(d, 5.0F);
        auto const& mine = x[static_cast<std::size_t>(workers.rank())];
        EXPECT_THROW(c.reduce(workers, mine, mean, {}, 0), gq::non_finite_error);
        EXPECT_EQ(mean, vector(d, 5.0F));
        c.reduce(workers, mine, mean, {}, 1);
      });
      for (auto const& t : texts)
        EXPECT_NE(t.find("the input of rank " + std::to_string(who) + " contains NaN"), t.npos) << t;
    }
  // one worker of three differs in something: all three hear the same
  auto const differ = [&](std::string const& what, auto const& layers, auto const& settings,
                          auto const& length, auto const& step) {
    auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
      int const r = workers.rank();
      auto c = make(layers(r), settings(r));
      vector const x(length(r), 1.0F);
      vector mean(length(r));
      c.reduce(workers, x, mean, {}, step(r));
    });
    for (auto const& t : texts) {
      EXPECT_NE(t.find("rank 2 differs from rank 0 in"), t.npos) << t;
      EXPECT_NE(t.find(what), t.npos) << t;
    }
  };
  auto const same_layers = [&](int) { return one_layer(d); };
  auto const same_settings = [](int) { return gq::options{}; };
  auto const same_length = [&](int) { return d; };
  auto const same_step = [](int) { return std::uint64_t{3}; };
  differ("the step", same_layers, same_settings, same_length,
         [](int r) { return static_cast<std::uint64_t>(r / 2); });
  differ(
      "the seed", same_layers, [](int r) { return gq::options{.seed = static_cast<std::uint64_t>(r / 2)}; },
      same_length, same_step);
  differ(
      "the length", [&](int r) { return one_layer(r == 2 ? d + 1 : d); }, same_settings,
      [&](int r) { return r == 2 ? d + 1 : d; }, same_step);
  differ(
      "grouping",
      [&](int r) {
        gq::adapt::model_layout l;
        l.add("a", {r == 2 ? d - 100 : d - 99}).add("b", {r == 2 ? 100UL : 99UL});
        return l;
      },
      same_settings, same_length, same_step);
  // one brings vectors that do not hold the layers: the others are told who and why
  auto const refused = support::complaints<gq::error>(3, [&](auto& workers) {
    auto c = make(one_layer(d), gq::options{});
    vector const x(workers.rank() == 2 ? d - 1 : d, 1.0F);
    vector mean(x.size());
    c.reduce(workers, x, mean, {}, 3);
  });
  for (int r : {0, 1})
    EXPECT_NE(refused[static_cast<std::size_t>(r)].find("rank 2 refused its arguments (the vectors have 299"),
              std::string::npos)
        << refused[static_cast<std::size_t>(r)];
  EXPECT_NE(refused[2].find("rank 2 of 3: the vectors have 299"), std::string::npos) << refused[2];
  // and where all do so, or count too far
  for (auto const& t : support::complaints<gq::configuration_error>(2, [&](auto& workers) {
         auto c = make(one_layer(d), gq::options{});
         vector x(d - 1), mean(d - 1);
         c.reduce(workers, x, mean, {}, 0);
       }))
    EXPECT_NE(t.find("have 299 (x), 299 (mean)"), t.npos) << t;
  for (auto const& t : support::complaints<gq::configuration_error>(2, [&](auto& workers) {
         auto c = make(one_layer(d), gq::options{});
         vector x(d), mean(d);
         c.reduce(workers, x, mean, {}, std::uint64_t{1} << 48);
       }))
    EXPECT_NE(t.find("2^48"), t.npos) << t;
  // layers of another type
  gq::adapt::model_layout half;
  half.add("half", {8}, gq::dtype::float16);
  EXPECT_THROW(make(half, gq::options{}), gq::configuration_error);
}

/// An outcome of the running test is the one in tests/golden/compressors.txt: the first, second, ... of that test.
inline void expect_recorded(std::string const& outcome) {
  static std::map<std::string, int> counts;
  ::testing::TestInfo const& test = *::testing::UnitTest::GetInstance()->current_test_info();
  std::string const name = std::string(test.test_suite_name()) + '.' + test.name();
  golden::record("compressors.txt").expect({{name + ' ' + std::to_string(++counts[name]), outcome}});
}

/// What every compressor promises of world sizes and lengths. check(x, got) sees each case.
template <class Make, class Check>
void for_worlds(Make const& make, Check const& check) {
  std::uint64_t hash = 0;
  for (int n = 1; n <= 9; ++n)
    for (std::uint64_t d : lengths()) {
      if (n > 4 && n != 9 && d > 300) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", d = " + std::to_string(d));
      auto const x = inputs(n, d, static_cast<unsigned>(31 * n));
      auto const got = run(
          x, [&] { return make(one_layer(d)); }, 7);
      for (auto o : got.outcome) EXPECT_EQ(o, gq::baseline::outcome::mean);
      expect_same_means(got);
      check(x, got);
      for (auto const& vectors : {got.mean, got.rest})
        for (vector const& v : vectors)
          hash = support::mix(hash, support::hash_bytes(v.data(), v.size() * sizeof(float)));
    }
  expect_recorded(golden::text(hash));
}

}  // namespace cases
