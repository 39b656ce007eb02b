// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The mean is right in expectation, and its variance is the exact one.
///
/// All seeds are fixed. A test of C comparisons fails when one of them lies beyond the level that C healthy ones pass but
/// for one chance in a million (Bonferroni): z with 2 C (1 - Phi(z)) = 1e-6.

#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using namespace support;

namespace unbiased_test {

/// Results of many steps: for each coordinate their mean and their mean square distance from a center.
struct moments {
  std::vector<double> mean, square;
  gq::plan plan;
};

template <class T>
moments sample(composition const& c, std::vector<std::vector<T>> const& x, std::vector<double> const& center,
               int steps) {
  int const n = static_cast<int>(x.size());
  std::size_t const d = x[0].size();
  moments m;
  m.mean.assign(d, 0);
  m.square.assign(d, 0);
  gq::any_quantizer const op = make_operator(c);
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 20240607}};
    std::vector<T> y(d);
    for (int k = 0; k < steps; ++k) {
      mean(x[r], y, static_cast<std::uint64_t>(k));
      if (r != 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        double const e = to_double(y[i]) - center[i];
        m.mean[i] += e / steps;
        m.square[i] += e * e / steps;
      }
    }
    if (r == 0) m.plan = mean.plan(d, gq::dtype_of<T>::value);
  });
  return m;
}

template <class T>
struct data {
  std::vector<std::vector<T>> x;
  std::vector<double> mean;
  double energy = 0;  ///< sum of all squares
};

template <class T>
data<T> make_data(int n, std::size_t d, std::uint64_t seed) {
  data<T> s;
  s.x.assign(static_cast<std::size_t>(n), std::vector<T>(d));
  s.mean.assign(d, 0);
  for (int r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i) {
      T const v = value_at<T>(input::normal, seed, r, n, i, d);
      s.x[static_cast<std::size_t>(r)][i] = v;
      s.mean[i] += to_double(v) / n;
      s.energy += to_double(v) * to_double(v);
    }
  return s;
}

/// Levels as fractions of the norm, ascending; with zero, or minus the smallest, in front.
std::vector<double> levels_of(composition const& c, std::uint32_t size) {
  std::vector<double> l = {0};
  if (c.levels.starts_with("uniform"))
    for (std::uint32_t k = 1; k <= size; ++k) l.push_back(static_cast<double>(k) / size);
  else if (c.levels == "exponential:4:1.5")
    l = {0, 8.0 / 27, 4.0 / 9, 2.0 / 3, 1};
  else if (c.levels.starts_with("exponential"))
    for (std::uint32_t k = size; k >= 1; --k) l.push_back(std::exp2(1.0 - k));
  else if (c.levels.starts_with("table"))
    l = {0, 0.1, 0.4, 1};
  else
    l = {-0.1, 0.1, 0.3, 0.6, 1};
  return l;
}

double norm_of(auto const& v, std::size_t first, std::size_t end, double q) {
  double sum = 0;
  for (std::size_t i = first; i < end; ++i)
    sum = std::isinf(q) ? std::max(sum, std::abs(to_double(v[i])))
                        : sum + std::pow(std::abs(to_double(v[i])), q);
  return std::isinf(q) ? sum : std::pow(sum, 1 / q);
}

/// Spec 5: the variance of each coordinate of the mean, when every worker's encoding is the only rounding.
template <class T>
std::vector<double> exact_variance(composition const& c, data<T> const& s, std::uint32_t size) {
  std::size_t const n = s.x.size(), d = s.mean.size(), width = c.bucket == 0 ? d : c.bucket;
  std::vector<double> const l = levels_of(c, size);
  std::vector<double> variance(d, 0);
  double const q = c.norm.find('2') != std::string::npos ? 2 : (c.norm == "l:1,1" ? 1 : INFINITY),
               p = c.norm == "l:2,2" ? 2 : (c.norm == "l:1,1" ? 1 : INFINITY);
  for (std::size_t first = 0; first < d; first += width) {
    std::size_t const end = std::min(first + width, d);
    std::vector<double> units;
    for (auto const& v : s.x) units.push_back(norm_of(v, first, end, q));
    if (!c.norm.starts_with("local")) std::fill(units.begin(), units.end(), norm_of(units, 0, n, p));
    for (std::size_t w = 0; w < n; ++w)
      for (std::size_t i = first; i < end; ++i) {
        double const y = std::min(std::abs(to_double(s.x[w][i])) / units[w], 1.0),
                     u = units[w] / static_cast<double>(n);
        std::size_t k = l.size() - 2;
        while (k > 0 && l[k] > y) --k;
        variance[i] +=
            u * u * (c.rounding == "random-shift" ? 1.0 / (12.0 * size * size) : (l[k + 1] - y) * (y - l[k]));
      }
  }
  return variance;
}

/// Compositions where a worker's own encoding is the only rounding.
std::vector<composition> const one_rounding = {
    {"linf", 0, "uniform:7", "stochastic", "int8", "sum", "ring"},
    {"linf", 0, "uniform", "stochastic", "int8", "auto", "native"},
    {"l:2,2", 0, "uniform", "stochastic", "int16", "sum", "tree"},
    {"linf", 100, "uniform:3", "stochastic", "packed:5", "sum", "sra"},
    {"linf", 0, "uniform:7", "stochastic", "int8", "sum", "hierarchical:2"},
    {"linf", 0, "uniform:7", "random-shift", "int8", "sum", "ring"},
    {"linf", 4, "uniform:7", "random-shift", "int8", "auto", "allgather"},
    {"linf", 4, "uniform:7", "random-shift-unshifted", "int8", "auto", "allgather"},
    {"l:1,1", 128, "uniform", "stochastic", "packed:4", "auto", "allgather"},
    {"linf", 0, "exponential", "stochastic", "int8", "auto", "allgather"},
    {"linf", 0, "exponential:3", "stochastic", "packed:3", "auto", "allgather"},
    {"local:2", 0, "exponential:4:1.5", "stochastic", "packed:4", "auto", "allgather"},
    {"linf", 0, "table:0,0.1,0.4,1", "stochastic", "packed:3", "auto", "allgather"},
    {"linf", 0, "symmetric:0.1,0.3,0.6,1", "stochastic", "packed:3", "auto", "allgather"},
    {"local:inf", 100, "uniform:1", "stochastic", "packed:2", "auto", "allgather"},
    {"local:2", 128, "uniform", "stochastic", "packed:8", "auto", "allgather"}};

/// Compositions that round on the way, too.
std::vector<composition> const many_roundings = {
    {"linf", 0, "exponential", "stochastic", "int8", "exponential", "ring"},
    {"linf", 0, "exponential:6", "stochastic", "packed:8", "exponential", "tree"},
    {"linf", 100, "exponential:3", "stochastic", "packed:5", "exponential", "sra"},
    {"linf", 0, "exponential", "stochastic", "int8", "auto", "hierarchical:2"},
    {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "hierarchical:2"},
    {"local:2", 100, "uniform:7", "stochastic", "packed:4", "auto", "hierarchical:3"},
    {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "ring"},
    {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "tree"},
    {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "sra"},
    {"linf", 0, "uniform:7", "random-shift-unshifted", "packed:4", "requantize", "sra"},
    {"linf", 0, "uniform:7", "random-shift", "packed:4", "requantize", "ring"},
    {"linf", 0, "uniform:7", "random-shift", "packed:4", "requantize", "tree"},
    {"linf", 0, "uniform:7", "random-shift", "packed:4", "requantize", "sra"},
    {"local:inf", 4, "uniform:7", "random-shift", "packed:4", "requantize", "ring"},
    {"linf", 0, "exponential", "stochastic", "packed:4", "requantize", "ring"},
    {"linf", 0, "exponential:4:1.5", "stochastic", "packed:4", "auto", "tree"},
    {"linf", 0, "table:0,0.1,0.4,1", "stochastic", "packed:3", "auto", "sra"},
    {"linf", 0, "symmetric:0.1,0.3,0.6,1", "stochastic", "packed:3", "auto", "ring"},
    {"local:2", 0, "uniform", "stochastic", "packed:8", "auto", "ring"},
    {"local:2", 100, "uniform:7", "stochastic", "packed:4", "auto", "tree"},
    {"local:inf", 128, "symmetric:0.1,0.3,0.6,1", "stochastic", "packed:3", "auto", "sra"},
    {"l:2,2", 128, "uniform:7", "stochastic", "packed:4", "auto", "sra"},
    {"l:1,1", 0, "exponential", "stochastic", "int8", "auto", "ring"}};

/// Checks every coordinate's mean, and the total variance.
/// @param variance  exact, or empty: measured
template <class T>
void check(composition const& c, data<T> const& s, moments const& m, int steps,
           std::vector<double> const& variance, double comparisons) {
  std::size_t const d = s.mean.size();
  double const z = threshold(comparisons);
  double total = 0, expected = 0;
  for (std::size_t i = 0; i < d; ++i) {
    total += m.square[i];
    expected += variance.empty() ? 0 : variance[i];
    double const v = variance.empty() ? m.square[i] : variance[i];
    // the result is rounded to its type, and t and the result to float32, toward either side
    double const rounding = std::abs(s.mean[i]) * std::exp2(-traits<T>::digits - 1) +
                            std::sqrt(v) * std::exp2(-traits<T>::digits) + 0x1p-21;
    EXPECT_LE(std::abs(m.mean[i]), z * std::sqrt(v / steps) + rounding)
        << c.text() << ", " << gq::name_of(gq::dtype_of<T>::value) << ", coordinate " << i << ", mean "
        << s.mean[i] << ", deviation " << std::sqrt(v);
    if (testing::Test::HasFailure()) return;
  }
  // where the rounding of a short type is as coarse as the levels, the variance is not the operator's
  if ((variance.empty() ? total : expected) <
      400 * static_cast<double>(d) * std::exp2(-2 * traits<T>::digits))
    return;
  double const bound = m.plan.theta / static_cast<double>(s.x.size()) * s.energy;
  // steps of a whole vector: the total varies by less than 6 sqrt(2 / (steps * d / 4)) of itself; shared words: of each bucket
  double const words =
      c.rounding.starts_with("random") && !variance.empty()
          ? static_cast<double>(steps) * static_cast<double>(c.bucket == 0 ? 1 : d / c.bucket) * 2
          : static_cast<double>(steps) * static_cast<double>(d) / 4;
  double const spread = 6 * std::sqrt(2 / words) + 8 * std::exp2(-traits<T>::digits);
  EXPECT_LE(total, bound * (1 + spread)) << c.text() << ": theta " << m.plan.theta;
  if (!variance.empty()) {
    EXPECT_NEAR(total / expected, 1.0, spread) << c.text();
  }
}

template <class T>
class Unbiased : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(Unbiased, value_types);

constexpr int steps = 600;
constexpr std::size_t length = 240;

TYPED_TEST(Unbiased, the_mean_and_the_exact_variance_of_one_rounding) {
  double const comparisons = static_cast<double>(one_rounding.size() * length * 2 * 4);
  for (composition const& c : one_rounding)
    for (int n : {1, 3}) {
      data<TypeParam> const s = make_data<TypeParam>(n, length, 11);
      moments const m = sample(c, s.x, s.mean, steps);
      check(c, s, m, steps, exact_variance(c, s, m.plan.levels), comparisons);
      if (this->HasFailure()) return;
    }
}

TYPED_TEST(Unbiased, the_mean_and_the_bound_of_many_roundings) {
  double const comparisons = static_cast<double>(many_roundings.size() * length * 2 * 4);
  for (composition const& c : many_roundings)
    for (int n : {2, 5}) {
      data<TypeParam> const s = make_data<TypeParam>(n, length, 12);
      moments const m = sample(c, s.x, s.mean, steps);
      check(c, s, m, steps, {}, comparisons * 2);
      if (this->HasFailure()) return;
    }
}

TEST(UnbiasedRare, coordinates_far_below_the_norm_are_hit_as_often_as_they_should) {
  // all but one value are +-2^-20 of the norm: the sum of all results counts the hits, a Poisson variable
  struct rare {
    composition c;
    double level;  ///< smallest level, as a fraction of the norm
  };
  std::vector<rare> const cases = {
      {{"linf", 0, "uniform:7", "stochastic", "int8", "sum", "ring"}, 1.0 / 7},
      {{"linf", 0, "uniform:1", "stochastic", "packed:2", "auto", "allgather"}, 1},
      {{"linf", 0, "uniform", "stochastic", "int8", "auto", "native"}, 1.0 / 42},
      {{"linf", 0, "exponential:5", "stochastic", "int8", "auto", "allgather"}, 1.0 / 16},
      {{"linf", 0, "exponential:4:1.5", "stochastic", "packed:4", "auto", "allgather"}, 8.0 / 27},
      {{"linf", 0, "table:0,0.1,0.4,1", "stochastic", "packed:3", "auto", "allgather"}, 0.1},
      {{"linf", 4, "uniform:5", "random-shift-unshifted", "packed:5", "sum", "tree"}, 1.0 / 5}};
  constexpr int n = 3, draws = 1500;
  constexpr std::size_t d = 4096;
  double const z = threshold(static_cast<double>(2 * cases.size()));
  for (rare const& each : cases) {
    std::size_t const bucket = each.c.bucket == 0 ? d : each.c.bucket;
    std::vector<std::vector<float>> x(n, std::vector<float>(d, 0x1p-20F));
    for (std::size_t i = 0; i < d; i += bucket)
      for (auto& v : x) v[i] = 1.0F;
    moments const m = sample(each.c, x, std::vector<double>(d, 0.0), draws);
    double hits = 0;
    for (std::size_t i = 0; i < d; ++i)
      if (i % bucket != 0) hits += m.mean[i] * draws * n / each.level;
    double const small = static_cast<double>(d - d / bucket);
    double const expected = small * n * draws * 0x1p-20 / each.level;
    // a shared word hits all values of a bucket at once: that many times the variance
    double const together = each.c.rounding == "stochastic" ? 1.0 : static_cast<double>(bucket - 1);
    ASSERT_GT(expected, 15);
    EXPECT_NEAR(hits, expected, z * std::sqrt(expected * together) + z * z / 3 * together) << each.c.text();
  }
}

TEST(UnbiasedRare, small_coordinates_survive_many_roundings) {
  // the mean of equal small coordinates over many steps, against their measured spread over the steps
  constexpr int n = 4, draws = 3000;
  constexpr std::size_t d = 1024;
  std::vector<composition> const cases = {
      {"linf", 0, "exponential:12", "stochastic", "int8", "exponential", "ring"},
      {"linf", 0, "exponential:12", "stochastic", "int8", "exponential", "tree"},
      {"linf", 0, "exponential:12", "stochastic", "packed:5", "requantize", "ring"},
      {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "sra"},
      {"linf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "tree"},
      {"local:inf", 0, "uniform:7", "stochastic", "packed:4", "requantize", "ring"}};
  double const z = threshold(static_cast<double>(cases.size()));
  for (composition const& c : cases) {
    std::vector<std::vector<float>> x(n, std::vector<float>(d, 0x1p-14F));
    for (auto& v : x) v[0] = 1.0F;
    moments const m = sample(c, x, std::vector<double>(d, 0x1p-14), draws);
    double mean = 0, square = 0;
    for (std::size_t i = 1; i < d; ++i) mean += m.mean[i] / (d - 1), square += m.square[i] / (d - 1);
    double const deviation = std::sqrt(square / (static_cast<double>(draws) * (d - 1)));
    ASSERT_GT(0x1p-14, 4 * deviation)
        << "the test could not tell a bias of the size of the value: " << c.text();
    EXPECT_LE(std::abs(mean), z * deviation * 1.1) << c.text() << ", deviation " << deviation;
  }
}

TEST(UnbiasedTop, values_as_large_as_the_norm_stay_unbiased) {
  // every value is the maximum, so that whatever is decoded beyond it may be cut off at the next hop
  constexpr int n = 4, draws = 3000;
  constexpr std::size_t d = 64;
  std::vector<composition> list;
  for (char const* schedule : {"ring", "tree", "sra", "allgather"})
    for (char const* rounding : {"stochastic", "random-shift", "random-shift-unshifted"})
      for (char const* norm : {"linf", "local:inf"})
        list.push_back({norm, 4, "uniform:3", rounding, "packed:4", "requantize", schedule});
  double const z = threshold(static_cast<double>(list.size()));
  for (composition const& c : list) {
    std::vector<std::vector<float>> x(n, std::vector<float>(d, 2.0F));
    moments const m = sample(c, x, std::vector<double>(d, 2.0), draws);
    // each bucket of 4 has one word where words are shared: 16 independent values a step
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < d; ++i) mean += m.mean[i] / d, square += m.square[i] / d;
    double const deviation = std::sqrt(square / (draws * static_cast<double>(d) / 4));
    EXPECT_LE(std::abs(mean), z * deviation + 0x1p-20) << c.text() << ": mean error " << mean;
  }
}

}  // namespace unbiased_test
