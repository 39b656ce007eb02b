// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Operators for 1 to 4 bits: their levels are solutions, their variance is that of theory.

#include "tests/quantizer/checked_mean.hpp"
#include "tests/quantizer/heavy_tails.hpp"

#include <globalq/operator/few_bits.hpp>
#include <globalq/train/learn/optimal.hpp>
#include <globalq/train/learn/truncated_normal.hpp>
#include <globalq/train/learn/variance.hpp>

#include <gtest/gtest.h>
#include <globalq/named/operators.hpp>

namespace gq = globalq;
namespace learn = globalq::learn;

namespace few_bits_test {

using namespace support;
using vectors = std::vector<std::vector<float>>;

gq::any_quantizer of_name(std::string const& words) {
  return gq::named::operator_of(gq::named::read_operator(words));
}

/// The law of |y| / m in blocks of normal values with the largest magnitude m, weighted by m^2, and the mean of m^2.
struct law_of_blocks {
  learn::bins bins;
  double square = 0;

  explicit law_of_blocks(double block) {
    constexpr int parts = 200;
    learn::mixture all;
    for (int k = 0; k < parts; ++k) {
      // P(|y| > m) where all of a block are at most m with probability (k + 1/2) / parts
      double const beyond = -std::expm1(std::log((k + 0.5) / parts) / block);
      double low = 0, high = 20;
      for (int i = 0; i < 100; ++i) {
        double const m = 0.5 * (low + high);
        (std::erfc(m * std::sqrt(0.5)) > beyond ? low : high) = m;
      }
      all.add(learn::truncated_normal(0, 1 / low), low * low);
      square += low * low / parts;
    }
    std::vector<double> edge(4097);
    for (std::size_t k = 0; k < edge.size(); ++k) edge[k] = static_cast<double>(k) / 4096;
    bins = learn::discretize(all, std::move(edge));
  }
  /// The relative variance of a block: one value, the largest, has none.
  double variance(learn::level_set const& l, double block) const {
    return square * learn::variance(learn::piecewise_uniform(bins), l) * (1 - 1 / block);
  }
};

learn::level_set levels_of(gq::any_quantizer const& op) { return {op.facts().magnitudes, true}; }

struct errors {
  std::vector<double> sum, squares;  ///< of the errors of each coordinate
  double relative = 0;               ///< mean square over the mean square of the vectors
};

/// The errors of the mean of some vectors over allgather.
errors measure(vectors const& x, gq::any_quantizer const& op, int steps) {
  std::size_t const d = x[0].size();
  std::vector<double> mean(d);
  double square = 0;
  for (auto const& v : x) {
    square += square_of(v) / static_cast<double>(x.size());
    for (std::size_t i = 0; i < d; ++i) mean[i] += static_cast<double>(v[i]) / static_cast<double>(x.size());
  }
  errors e{std::vector<double>(d), std::vector<double>(d)};
  on_threads(static_cast<int>(x.size()), std::chrono::seconds{60}, [&](auto& workers) {
    gq::allreduce_mean call{workers, op, gq::schedule::allgather{}, {.seed = 77}};
    std::vector<float> y(d);
    for (int s = 0; s < steps; ++s) {
      call(x[static_cast<std::size_t>(workers.rank())], y, static_cast<std::uint64_t>(s));
      if (workers.rank() != 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        double const off = static_cast<double>(y[i]) - mean[i];
        e.sum[i] += off;
        e.squares[i] += off * off;
      }
    }
  });
  e.relative = std::accumulate(e.squares.begin(), e.squares.end(), 0.0) / steps / square;
  return e;
}

std::string words(char const* name, int bits) { return name + std::to_string(bits); }

TEST(RotatedOptimal, its_levels_are_those_of_the_solver) {
  for (int bits = 1; bits <= 4; ++bits) {
    learn::level_set const own = levels_of(of_name(words("rotated-optimal:", bits)));
    ASSERT_EQ(own.size(), 1U << (bits - 1));
    for (double block : {128.0, 1024.0, 4096.0}) {
      law_of_blocks const law(block);
      learn::solution const best =
          learn::optimal{.size = own.size(), .zero_free = true, .sweeps = 100}(law.bins);
      double const excess = law.variance(own, block) / law.variance(best.levels, block);
      EXPECT_LT(excess, block == 1024 ? 1 + 1e-6 : 1.06) << bits << " bits, " << block;
      if (block != 1024) continue;
      for (std::size_t k = 0; k < own.values.size(); ++k)
        EXPECT_NEAR(own.values[k], best.levels.values[k], 1e-4) << bits << " bits";
    }
  }
}

/// Unbiased within 6 deviations at each coordinate, with the variance of normal values: a mean square of 2^22 errors, with another
/// largest value in each of 4,000 blocks. A block with one outlier has less: most of a rotated value is plus or minus one number.
TEST(RotatedOptimal, it_is_unbiased_with_the_variance_of_theory) {
  constexpr int steps = 1000;
  constexpr std::size_t d = 4096;
  law_of_blocks const law(1024);
  for (int bits = 1; bits <= 4; ++bits) {
    gq::any_quantizer const op = of_name(words("rotated-optimal:", bits));
    EXPECT_TRUE(op.facts().unbiased);
    for (bool const heavy : {false, true}) {
      errors const e = measure({normal_or_heavy(d, 5, heavy)}, op, steps);
      for (std::size_t i = 0; i < d; ++i)
        ASSERT_LE(std::abs(e.sum[i]), 6 * std::sqrt(e.squares[i])) << bits << " " << i;
      double const share = e.relative / law.variance(levels_of(op), 1024);
      EXPECT_LT(share, 1.03) << bits << (heavy ? " heavy" : " normal");
      EXPECT_GT(share, heavy ? 0.75 : 0.97) << bits << (heavy ? " heavy" : " normal");
    }
  }
}

/// Equal vectors have equal fractions of gaps: n times less variance than independent roundings where fractions are uniform.
/// A fraction f below 1/n gains only (1 - f) / (1 - n f), so fewer levels, whose values lie near one end, gain less.
TEST(RotatedOptimal, errors_of_workers_cancel) {
  constexpr int n = 4, steps = 200;
  constexpr std::size_t d = 2048;
  auto const of = [&](int workers, bool equal, int bits) {
    vectors x;
    for (int r = 0; r < workers; ++r)
      x.push_back(normal_or_heavy(d, equal ? 1 : static_cast<std::uint64_t>(r) + 1));
    return measure(x, of_name(words("rotated-optimal:", bits)), steps).relative * workers;
  };
  for (int bits = 1; bits <= 4; ++bits) {
    double const alone = of(1, true, bits);
    EXPECT_GT(alone / of(n, false, bits), 1.2) << bits;
    double const gain = alone / of(n, true, bits);
    EXPECT_GT(gain, 0.8 * n) << bits;
  }
}

}  // namespace few_bits_test
