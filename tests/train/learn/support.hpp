// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Distributions to learn from, numeric integration, and what every set of levels must satisfy.

#include "globalq/train/learn/bins.hpp"
#include "globalq/train/learn/distribution.hpp"
#include "globalq/train/learn/level_set.hpp"
#include "globalq/train/learn/piecewise_uniform.hpp"
#include "globalq/train/learn/truncated_normal.hpp"
#include "globalq/train/learn/variance.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace globalq_test {

namespace gq = globalq;
namespace learn = globalq::learn;

/// The density (k + 1) r^k on [0, 1]; k = 0 is uniform. A user's own distribution: two functions.
struct power_density {
  double k = 0;
  learn::moments below(double t) const {
    return {std::pow(t, k + 1), (k + 1) / (k + 2) * std::pow(t, k + 2),
            (k + 1) / (k + 3) * std::pow(t, k + 3)};
  }
  double quantile(double q) const { return std::pow(q, 1 / (k + 1)); }
};

/// The density rate e^(-rate r) / (1 - e^-rate) on [0, 1].
struct cut_exponential {
  double rate;
  learn::moments below(double t) const {
    double const e = std::exp(-rate * t), whole = -std::expm1(-rate), mass = -std::expm1(-rate * t);
    double const first = mass / rate - t * e;
    return {mass / whole, first / whole, (2 / rate * first - t * t * e) / whole};
  }
  double quantile(double q) const { return -std::log1p(q * std::expm1(-rate)) / rate; }
};

static_assert(learn::Distribution<power_density>);
static_assert(learn::Distribution<cut_exponential>);
static_assert(learn::Distribution<learn::piecewise_uniform>);
static_assert(learn::Distribution<learn::truncated_normal>);
static_assert(learn::Distribution<learn::mixture>);
static_assert(!learn::Distribution<learn::bins>);

/// Composite Gauss-Legendre with 3 points over n pieces: error O(n^-6) for smooth functions.
template <class G>
double integral(double a, double b, G const& g, int n = 4000) {
  double const h = (b - a) / n, x = std::sqrt(0.6) / 2 * h;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    double const m = a + (i + 0.5) * h;
    sum += (5 * g(m - x) + 8 * g(m) + 5 * g(m + x)) / 18;
  }
  return sum * h;
}

/// Levels that a table takes, ascending as float32.
inline void expect_usable(learn::level_set const& l, std::uint32_t size, std::string const& what) {
  ASSERT_EQ(l.size(), size) << what;
  EXPECT_EQ(l.values.back(), 1.0) << what;
  if (l.zero_free)
    EXPECT_NO_THROW(static_cast<void>(l.symmetric())) << what;
  else
    EXPECT_NO_THROW(static_cast<void>(l.table())) << what;
}

/// Bins of masses and means that a generator gives, some of them empty, some with their mean at an edge.
inline learn::bins random_bins(std::uint32_t seed, std::size_t n) {
  std::mt19937 draw(seed);
  auto const unit = [&] { return static_cast<double>(draw() >> 8) * 0x1p-24; };
  learn::bins b;
  b.edge.push_back(0);
  for (std::size_t k = 1; k < n; ++k) b.edge.push_back(b.edge.back() + 0.01 + unit());
  double const last = b.edge.back() + 0.5;
  for (double& e : b.edge) e /= last;
  b.edge.push_back(1);
  double total = 0;
  for (std::size_t k = 0; k < n; ++k) {
    b.mass.push_back(draw() % 5 == 0 ? 0.0 : std::pow(unit(), 3));
    double const at = draw() % 7 == 0 ? (draw() % 2 == 0 ? 0.0 : 1.0) : unit();
    b.mean.push_back(b.edge[k] + (b.edge[k + 1] - b.edge[k]) * at);
    total += b.mass[k];
  }
  for (double& m : b.mass) m /= total;
  return b;
}

}  // namespace globalq_test
