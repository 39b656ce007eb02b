// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Solvers: monotone, usable by tables, right where the optimum is known, and the optimum against brute force.

#include "globalq/train/learn/coordinate_descent.hpp"
#include "globalq/train/learn/gradient_descent.hpp"
#include "globalq/train/learn/multiplier.hpp"
#include "globalq/train/learn/optimal.hpp"

#include "tests/train/learn/support.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace globalq_test {
namespace {

using learn::atoms;
using learn::level_set;

/// The variance for atoms, from its definition.
long double variance_of(atoms const& a, level_set const& l) {
  long double sum = 0, total = 0;
  for (std::size_t k = 0; k < a.at.size(); ++k) {
    long double const r = a.at[k];
    std::size_t i = l.first_free();
    while (l.values[i] < a.at[k]) ++i;
    long double const c = l.values[i], low = i > 0 ? static_cast<long double>(l.values[i - 1]) : -c;
    sum += static_cast<long double>(a.mass[k]) * (c - r) * (r - low);
    total += static_cast<long double>(a.mass[k]);
  }
  return sum / total;
}

atoms random_atoms(std::uint32_t seed, std::size_t n) {
  std::mt19937 draw(seed);
  atoms a;
  double at = 0;
  for (std::size_t k = 0; k < n; ++k) {
    at += 1 + static_cast<double>(draw() % (seed % 3 == 0 ? 1000 : 10));
    a.at.push_back(at);
    a.mass.push_back(1 + static_cast<double>(draw() % (seed % 2 == 0 ? 100 : 3)));
  }
  for (double& x : a.at) x /= at + 1;
  return a;
}

/// Without zero: the best first level, anywhere below the second, by thirds (the variance is convex in it).
double best_first_level(atoms const& a, level_set l) {
  double low = 0, high = l.values[1];
  for (int k = 0; k < 200; ++k) {
    double const u = low + (high - low) / 3, v = high - (high - low) / 3;
    l.values[0] = u;
    long double const at_u = variance_of(a, l);
    l.values[0] = v;
    (at_u < variance_of(a, l) ? high : low) = at_u < variance_of(a, l) ? v : u;
  }
  return 0.5 * (low + high);
}

/// The least variance over all choices of levels from the candidates.
long double brute_force(atoms const& a, std::uint32_t size, bool zero_free) {
  long double least = std::numeric_limits<long double>::infinity();
  level_set l;
  l.zero_free = zero_free;
  l.values.assign(size + (zero_free ? 0U : 1U), 0.0);
  l.values.back() = 1;
  std::function<void(std::size_t, std::size_t)> const place = [&](std::size_t i, std::size_t from) {
    if (i + 1 == l.values.size()) {
      if (zero_free) l.values[0] = best_first_level(a, l);
      least = std::min(least, variance_of(a, l));
      return;
    }
    for (std::size_t k = from; k < a.at.size(); ++k) {
      l.values[i] = a.at[k];
      place(i + 1, k + 1);
    }
  };
  place(1, 0);
  return least;
}

TEST(Optimal, is_the_best_of_all_choices) {
  for (bool zero_free : {false, true})
    for (std::uint32_t seed = 1; seed <= 12; ++seed)
      for (std::uint32_t size : {2U, 3U, 4U, 5U}) {
        atoms const a = random_atoms(seed, 11);
        learn::solution const s = learn::optimal{.size = size, .zero_free = zero_free}(a);
        expect_usable(s.levels, size, "optimal");
        long double const least = brute_force(a, size, zero_free);
        // sums of 13 doubles of at most 1
        EXPECT_NEAR(static_cast<double>(variance_of(a, s.levels)), static_cast<double>(least), 1e-14);
        EXPECT_NEAR(s.variance, static_cast<double>(least), 1e-14);
      }
}

TEST(Optimal, is_no_worse_than_levels_between_atoms) {
  // the variance is linear between atoms, so nothing is gained there: random levels anywhere never win
  std::mt19937 draw(5);
  for (bool zero_free : {false, true})
    for (std::uint32_t seed = 1; seed <= 8; ++seed) {
      atoms const a = random_atoms(seed, 9);
      double const least = learn::optimal{.size = 3, .zero_free = zero_free}(a).variance;
      for (int k = 0; k < 3000; ++k) {
        level_set l = learn::uniform_levels(3, zero_free);
        double u = static_cast<double>(draw() % 9998 + 1) / 1e4,
               v = static_cast<double>(draw() % 9998 + 1) / 1e4;
        if (u == v) continue;
        l.values[l.first_free()] = std::min(u, v);
        l.values[l.first_free() + 1] = std::max(u, v);
        EXPECT_GE(static_cast<double>(variance_of(a, l)), least - 1e-15);
      }
    }
}

TEST(Optimal, variance_is_linear_in_a_level_between_two_atoms) {
  atoms const a = random_atoms(3, 12);
  for (bool zero_free : {false, true}) {
    level_set l = learn::uniform_levels(3, zero_free);
    std::size_t const i = l.first_free() + 1;  // not the first: without zero its square counts
    l.values[i - 1] = a.at[1];
    auto const at = [&](double b) {
      l.values[i] = b;
      return static_cast<double>(variance_of(a, l));
    };
    double const low = a.at[5], high = a.at[6];
    for (double share : {0.1, 0.5, 0.9})
      EXPECT_NEAR(at(low + share * (high - low)), (1 - share) * at(low) + share * at(high), 1e-15);
  }
}

TEST(Optimal, without_zero_the_first_level_may_lie_between_atoms) {
  // one atom of mass 3 at 0.1, one of mass 1 at 0.9: 2 b 3 = (1 - 0.9) 1, but b >= 0.1, so b = 0.1; with masses exchanged
  // and atoms at 0.1 and 0.2: 2 b 1 = (1 - 0.2) 3 at b = 1.2, so b = 0.2; between: masses 2 and 1, atoms 0.1 and 0.3
  auto const first = [](atoms const& a) {
    return learn::optimal{.size = 2, .zero_free = true}(a).levels.values[0];
  };
  EXPECT_NEAR(first({{0.1, 0.9}, {3, 1}}), 0.1, 1e-15);
  EXPECT_NEAR(first({{0.1, 0.2}, {1, 3}}), 0.2, 1e-15);
  EXPECT_NEAR(first({{0.1, 0.3}, {2, 1}}), 0.7 / 4, 1e-15);
}

/// O(size n^2) once the costs of all gaps are known, each added up by itself: no differences of sums.
long double by_all_pairs(atoms const& a, std::uint32_t size, bool zero_free) {
  std::size_t const n = a.at.size() + 2;
  std::vector<long double> y{0}, w{0};
  long double total = 0;
  for (double v : a.mass) total += static_cast<long double>(v);
  for (std::size_t k = 0; k < a.at.size(); ++k) {
    y.push_back(a.at[k]);
    w.push_back(static_cast<long double>(a.mass[k]) / total);
  }
  y.push_back(1);
  w.push_back(0);
  auto const gap = [&](long double low, long double high) {
    long double sum = 0;
    for (std::size_t k = 1; k + 1 < n; ++k)
      if (y[k] > low && y[k] < high) sum += w[k] * (high - y[k]) * (y[k] - low);
    return sum;
  };
  // without zero: the best first level b below node j, by thirds
  auto const around = [&](std::size_t j) {
    auto const at = [&](long double b) {
      long double sum = gap(b, y[j]);
      for (std::size_t k = 1; k + 1 < n && y[k] < b; ++k) sum += w[k] * (b * b - y[k] * y[k]);
      return sum;
    };
    if (size == 1) return at(1);
    long double low = 0, high = y[j];
    for (int k = 0; k < 120; ++k) {
      long double const u = low + (high - low) / 3, v = high - (high - low) / 3;
      if (at(u) < at(v))
        high = v;
      else
        low = u;
    }
    return at((low + high) / 2);
  };
  std::vector<std::vector<long double>> cost(n, std::vector<long double>(n, 0));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j) cost[i][j] = gap(y[i], y[j]);
  std::vector<long double> before(n), after(n);
  for (std::size_t j = 1; j < n; ++j) before[j] = zero_free ? around(j) : cost[0][j];
  before[0] = std::numeric_limits<long double>::infinity();
  for (std::uint32_t g = zero_free ? 3 : 2; g <= size; ++g) {
    for (std::size_t j = 0; j < n; ++j) {
      after[j] = std::numeric_limits<long double>::infinity();
      for (std::size_t i = 1; i < j; ++i) after[j] = std::min(after[j], before[i] + cost[i][j]);
    }
    before = after;
  }
  return before[n - 1];
}

TEST(Optimal, divide_and_conquer_finds_what_all_pairs_find) {
  for (bool zero_free : {false, true})
    for (std::uint32_t size : {1U, 2U, 7U, 16U, 60U})
      for (std::size_t n : {61U, 200U}) {
        atoms const a = random_atoms(size, n);
        learn::solution const s = learn::optimal{.size = size, .zero_free = zero_free}(a);
        long double const least = by_all_pairs(a, size, zero_free);
        // the double sums are good to n 2^-53 of E r^2 <= 1 each, in at most `size` gaps
        double const tolerance = static_cast<double>(n) * size * 0x1p-52;
        EXPECT_NEAR(s.variance, static_cast<double>(least), tolerance) << size;
        EXPECT_NEAR(static_cast<double>(variance_of(a, s.levels)), static_cast<double>(least), tolerance);
      }
}

TEST(Optimal, gap_costs_satisfy_the_quadrangle_inequality) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    learn::detail::gap_costs const c(random_atoms(seed, 20));
    for (std::size_t i = 0; i < c.size(); ++i)
      for (std::size_t k = i; k < c.size(); ++k)
        for (std::size_t j = k + 1; j < c.size(); ++j)
          for (std::size_t l = j; l < c.size(); ++l)
            ASSERT_LE(c(i, j) + c(k, l), c(i, l) + c(k, j) + 1e-15) << i << k << j << l;
  }
}

TEST(Optimal, sees_small_magnitudes_beside_one_large_one) {
  // Nearly all mass near 2^-24 and a few values near 1: the variance is 2^-50 of what the sums hold.
  atoms a;
  for (int k = 1; k <= 60; ++k) {
    a.at.push_back(k * 0x1p-30);
    a.mass.push_back(1000);
  }
  for (int k = 0; k < 9; ++k) {
    a.at.push_back(0.5 + k / 20.0);
    a.mass.push_back(1e-3);
  }
  for (bool zero_free : {false, true})
    for (std::uint32_t size : {8U, 15U}) {
      learn::solution const s = learn::optimal{.size = size, .zero_free = zero_free}(a);
      double const least = static_cast<double>(by_all_pairs(a, size, zero_free));
      // 2^-53 of y_j M_i + P_j, which near 1 is 2^-53 1e-7 = 1e-23 in a gap, over a variance of some 1e-18 to 1e-17
      EXPECT_NEAR(static_cast<double>(variance_of(a, s.levels)) / least, 1, 1e-4) << size;
      EXPECT_NEAR(s.variance / least, 1, 1e-4) << size;
    }
}

TEST(Optimal, with_a_level_for_each_atom_costs_nothing) {
  atoms const a{{0.25, 0.5, 0.75}, {1, 2, 3}};
  for (std::uint32_t size : {4U, 5U, 40U, 127U}) {
    learn::solution const s = learn::optimal{.size = size}(a);
    expect_usable(s.levels, size, "few atoms");
    EXPECT_EQ(s.variance, 0);
    EXPECT_EQ(variance_of(a, s.levels), 0);
  }
  expect_usable(learn::optimal{.size = 5}(atoms{{0.0, 1.0}, {1, 1}}).levels, 5, "only ends");
  expect_usable(learn::optimal{.size = 5}(atoms{{1e-300}, {1}}).levels, 5, "tiny");
  expect_usable(learn::optimal{.size = 5, .zero_free = true}(atoms{{0.0, 0.25}, {1, 1}}).levels, 5, "zero");
  atoms const near{{0.5, 0.5 + 0x1p-40, 0.5 + 0x1p-39, 0.75, 1 - 0x1p-40}, {1, 1, 1, 1, 1}};
  expect_usable(learn::optimal{.size = 4}(near).levels, 4, "atoms closer than float32 tells apart");
}

TEST(Solvers, keep_even_levels_for_even_magnitudes) {
  // F uniform: evenly spaced levels are the only stationary point, and the objective is convex (Corollary 1 of the paper)
  for (bool zero_free : {false, true})
    for (std::uint32_t size : {1U, 2U, 5U, 15U}) {
      level_set const even = learn::uniform_levels(size, zero_free);
      level_set const start = learn::exponential_levels(size, 0.7, zero_free);
      auto const near = [&](learn::solution const& s, double tolerance, char const* who) {
        expect_usable(s.levels, size, who);
        for (std::size_t i = 0; i < even.values.size(); ++i)
          EXPECT_NEAR(s.levels.values[i], even.values[i], tolerance) << who;
      };
      near(
          learn::coordinate_descent{
              .size = size, .zero_free = zero_free, .start = start, .max_sweeps = 5000, .tolerance = 1e-14}(
              power_density{0}),
          1e-4, "coordinate descent");
      near(
          learn::gradient_descent{
              .size = size, .zero_free = zero_free, .start = start, .max_steps = 20000, .tolerance = 1e-13}(
              power_density{0}),
          1e-3, "gradient descent");
      atoms grid;
      for (int k = 0; k < 1155 * 4;
           ++k) {  // a multiple of 2, 5, 15, 3, 9 and so on, half a step from the ends
        grid.at.push_back((k + 0.5) / 4620);
        grid.mass.push_back(1);
      }
      near(learn::optimal{.size = size, .zero_free = zero_free}(grid), 2 / 4620.0, "optimal");
    }
}

TEST(Solvers, find_the_one_level_that_is_known_in_closed_form) {
  // Corollary 2 of the paper: between 0 and 1 the best level is F^-1(1 - E r)
  auto const expect = [](auto const& f, double known) {
    learn::solution const s = learn::coordinate_descent{.size = 2}(f);
    EXPECT_NEAR(s.levels.values[1], known, 1e-12);
    learn::solution const g = learn::gradient_descent{.size = 2, .tolerance = 1e-15}(f);
    EXPECT_NEAR(g.levels.values[1], known, 1e-5);
    std::vector<double> edge;
    for (int k = 0; k <= 4096; ++k) edge.push_back(k / 4096.0);
    learn::solution const o = learn::optimal{.size = 2}(learn::discretize(f, edge));
    EXPECT_NEAR(o.levels.values[1], known, 1.0 / 4096);
  };
  for (double k : {0.0, 1.0, 3.0}) expect(power_density{k}, std::pow(1 / (k + 2), 1 / (k + 1)));
  for (double rate : {1.0, 10.0, 40.0}) {
    double const mean = 1 / rate - std::exp(-rate) / -std::expm1(-rate);
    expect(cut_exponential{rate}, -std::log1p((1 - mean) * std::expm1(-rate)) / rate);
  }
}

/// F of several kinds, as bins.
std::vector<std::pair<std::string, learn::bins>> distributions() {
  std::vector<double> edge{0};
  for (int k = -1536; k <= 0; ++k) edge.push_back(std::exp2(k / 96.0));
  std::vector<std::pair<std::string, learn::bins>> list;
  auto const with = [&](std::string name, auto const& f) {
    list.emplace_back(name, learn::discretize(f, edge));
  };
  with("normal 0.3", learn::truncated_normal(0, 0.3));
  with("normal 1/128", learn::truncated_normal(0, 1 / 128.0));
  with("magnitudes", learn::truncated_normal(0.5, 0.1, learn::normal_of::magnitudes));
  with("exponential", cut_exponential{50});
  learn::mixture two;
  two.add(learn::truncated_normal(0, 0.001), 5);
  two.add(learn::truncated_normal(0, 0.3), 1);
  with("mixture", two);
  list.emplace_back("random bins", random_bins(4, 200));
  learn::bins one;
  one.edge = {0, 0.25, 0.5, 1};
  one.mass = {0, 1, 0};
  one.mean = {0, 0.25, 0.75};  // all mass at one point, which is an edge
  list.emplace_back("one atom", one);
  return list;
}

TEST(Solvers, never_raise_the_variance) {
  for (auto const& [name, b] : distributions())
    for (bool zero_free : {false, true})
      for (level_set const& start :
           {learn::uniform_levels(7, zero_free), learn::exponential_levels(7, 0.5, zero_free)}) {
        learn::piecewise_uniform const f(b);
        double before = learn::variance(f, start), last = before;
        level_set sweep = start, step = start;
        for (int k = 0; k < 40; ++k) {
          learn::solution const s = learn::coordinate_descent{
              .size = 7, .zero_free = zero_free, .start = sweep, .max_sweeps = 1}(f);
          // Psi is a difference of numbers up to E r^2
          EXPECT_LE(s.variance, before + 1e-15) << name;
          before = s.variance;
          sweep = s.levels;
          learn::solution const g =
              learn::gradient_descent{.size = 7, .zero_free = zero_free, .start = step, .max_steps = 1}(f);
          EXPECT_LE(g.variance, last) << name;
          last = g.variance;
          step = g.levels;
        }
      }
}

TEST(Solvers, give_levels_that_a_table_takes_whatever_the_distribution) {
  for (auto const& [name, b] : distributions())
    for (bool zero_free : {false, true})
      for (std::uint32_t size : {1U, 2U, 3U, 7U, 31U, 127U}) {
        expect_usable(
            learn::coordinate_descent{.size = size, .zero_free = zero_free, .max_sweeps = 30}(b).levels, size,
            name + ", coordinate descent");
        expect_usable(
            learn::gradient_descent{.size = size, .zero_free = zero_free, .max_steps = 50}(b).levels, size,
            name + ", gradient descent");
        expect_usable(learn::optimal{.size = size, .zero_free = zero_free}(b).levels, size,
                      name + ", optimal");
        if (size <= 31) {
          expect_usable(learn::multiplier{.size = size, .zero_free = zero_free}(b).levels, size,
                        name + ", multiplier");
        }
      }
}

TEST(Solvers, nothing_beats_the_optimum_and_descent_comes_near) {
  for (auto const& [name, b] : distributions()) {
    learn::piecewise_uniform const f(b);
    for (bool zero_free : {false, true})
      for (std::uint32_t size : {3U, 4U, 7U}) {
        double const best = learn::optimal{.size = size, .zero_free = zero_free, .sweeps = 100}(b).variance;
        double const slack = 1e-3 * best + 1e-15;  // bins are narrow, not points
        learn::coordinate_descent const alq{.size = size, .zero_free = zero_free};
        learn::gradient_descent const alqg{.size = size, .zero_free = zero_free};
        learn::multiplier const amq{.size = size, .zero_free = zero_free};
        EXPECT_GE(alq(b).variance, best - slack) << name;
        EXPECT_GE(alqg(b).variance, best - slack) << name;
        EXPECT_GE(amq(b).variance, best - slack) << name;
        EXPECT_GE(learn::variance(f, learn::uniform_levels(size, zero_free)), best - slack) << name;
      }
  }
}

TEST(CoordinateDescent, ends_where_no_level_can_be_moved_for_the_better) {
  for (bool zero_free : {false, true}) {
    learn::truncated_normal const f(0, 0.1);
    learn::solution const s = learn::coordinate_descent{
        .size = 4, .zero_free = zero_free, .max_sweeps = 2000, .tolerance = 1e-15}(f);
    EXPECT_TRUE(s.converged);
    for (std::size_t i = s.levels.first_free(); i + 1 < s.levels.values.size(); ++i)
      EXPECT_NEAR(learn::variance_derivative(f, s.levels, i), 0,
                  1e-7);  // a step of 1e-15 Psi: sqrt(1e-15 * 0.01)
  }
}

TEST(Multiplier, derivative_is_the_limit_of_differences) {
  learn::truncated_normal const f(0, 0.2);
  for (bool zero_free : {false, true})
    for (std::uint32_t size : {1U, 2U, 4U, 8U})
      for (double p : {0.2, 0.5, 0.85}) {
        double const h = 1e-5;
        auto const psi = [&](double at) {
          return learn::variance(f, learn::exponential_levels(size, at, zero_free));
        };
        double const slope = (psi(p + h) - psi(p - h)) / (2 * h);
        // 1e-16 of rounding over 2h, h^2 times third derivatives below 1,000
        EXPECT_NEAR(learn::multiplier_derivative(f, p, size, zero_free), slope, 1e-10 + 1e3 * h * h);
      }
}

TEST(Multiplier, is_the_best_of_a_fine_grid) {
  for (auto const& [name, b] : distributions()) {
    learn::piecewise_uniform const f(b);
    for (bool zero_free : {false, true}) {
      learn::solution const s = learn::multiplier{.size = 4, .zero_free = zero_free}(f);
      for (double p = 0.001; p < 0.999; p += 0.001)
        EXPECT_LE(s.variance,
                  learn::variance(f, learn::exponential_levels(4, p, zero_free)) * (1 + 1e-4) + 1e-15)
            << name << ' ' << p;
    }
  }
}

TEST(Multiplier, gradient_descent_falls_to_a_stationary_point) {
  learn::truncated_normal const f(0, 0.1);
  for (double start : {0.2, 0.5, 0.8}) {
    learn::solution const s = learn::multiplier{.size = 4, .start = start}(f);
    EXPECT_LE(s.variance, learn::variance(f, learn::exponential_levels(4, start, true)));
    double const p = s.levels.values[2];
    EXPECT_NEAR(learn::multiplier_derivative(f, p, 4, true), 0, 1e-5);
  }
  EXPECT_THROW(learn::multiplier{.start = 1.0}(f), gq::configuration_error);
}

TEST(Solvers, refuse_numbers_of_levels_that_no_table_has) {
  learn::bins const b = random_bins(1, 20);
  for (std::uint32_t size : {0U, 128U}) {
    EXPECT_THROW(learn::optimal{.size = size}(b), gq::configuration_error);
    EXPECT_THROW(learn::coordinate_descent{.size = size}(b), gq::configuration_error);
    EXPECT_THROW(learn::gradient_descent{.size = size}(b), gq::configuration_error);
    EXPECT_THROW(learn::multiplier{.size = size}(b), gq::configuration_error);
  }
}

TEST(Solvers, refuse_a_start_of_other_levels) {
  power_density const f{0};
  for (level_set const& start : std::vector<level_set>{{{0, 0.5, 1}, false},
                                                       {{0.25, 0.5, 0.75, 1}, true},
                                                       {{0, 0.5, 0.25, 1}, false},
                                                       {{0, 0.25, 0.5, 0.75}, false},
                                                       {{0.1, 0.25, 0.5, 1}, false},
                                                       {{}, false}}) {
    learn::coordinate_descent const alq{.size = 3, .start = start};
    learn::gradient_descent const alqg{.size = 3, .start = start};
    EXPECT_THROW(alq(f), gq::configuration_error);
    EXPECT_THROW(alqg(f), gq::configuration_error);
  }
  learn::coordinate_descent const equal{.size = 3, .start = level_set{{0, 0.5, 0.5, 1}, false}};
  expect_usable(equal(f).levels, 3, "levels that coincide are moved apart");
}

}  // namespace
}  // namespace globalq_test
