// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Correlated rounding: uniform words of each worker, a uniform permutation of parts, and the exact variance of the mean.

#include "globalq/rounding/correlated.hpp"

#include "tests/rounding/suite.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/policies.hpp>
#include <globalq/random/stream.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace globalq_test {

using gq::rounding::correlated;
using support::on_threads;

INSTANTIATE_TYPED_TEST_SUITE_P(correlated, rounding_scheme_suite, correlated);
INSTANTIATE_TYPED_TEST_SUITE_P(correlated, unbiased_rounding_suite, correlated);

static_assert(gq::SharesWords<correlated> && !gq::SharesWords<gq::rounding::stochastic>);

/// The loops for stochastic are not for a class that derives from it.
struct never_up : gq::rounding::stochastic {
  static constexpr char const* name = "never-up";
  GLOBALQ_FUNCTION bool up(std::uint32_t, std::uint32_t, std::uint32_t) const { return false; }
};
static_assert(gq::ComparesWordsAlone<gq::rounding::stochastic> && !gq::ComparesWordsAlone<never_up>);

/// Rounds as stochastic if it is told exactly once. Has no default constructor.
struct told_once {
  static constexpr char const* name = "told-once";
  static constexpr bool word_per_coordinate = true, unbiased = true;
  std::uint32_t times;

  explicit told_once(std::uint32_t before) : times(before) {}
  std::uint64_t parameters() const { return 0; }
  told_once for_worker(std::uint32_t, std::uint32_t) const { return told_once(times + 1); }
  GLOBALQ_FUNCTION bool shifts() const { return false; }
  GLOBALQ_FUNCTION std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  GLOBALQ_FUNCTION bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const {
    return (times == 1 ? word : ~word) < threshold;
  }
  GLOBALQ_FUNCTION double shift(std::uint32_t) const { return 0; }
};
static_assert(gq::ToldWorker<told_once> && !gq::SharesWords<told_once>);

namespace {

using shared = std::array<std::uint32_t, 16>;

/// The smallest word that chooses @p k of @p n.
std::uint32_t choosing(std::uint64_t k, std::uint64_t n) {
  return static_cast<std::uint32_t>(((k << 32) + n - 1) / n);
}

/// The number of words with which a value below @p threshold is rounded up. compared() does not fall as words rise.
std::uint64_t words_below(auto const& in_tile, std::uint32_t threshold) {
  std::uint64_t low = 0, high = std::uint64_t{1} << 32;
  while (low < high) {
    std::uint64_t const middle = (low + high) / 2;
    if (in_tile.compared(static_cast<std::uint32_t>(middle), 0) < threshold)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// All parts are equally probable, so the probability is the mean over parts; exact numbers, no sampling.
TEST(Correlated, each_workers_word_is_uniform_to_one_in_2_to_32) {
  for (std::uint32_t n = 1; n <= 16; ++n) {
    std::vector<std::uint32_t> at = thresholds();
    for (std::uint64_t k = 1; k < n; ++k)
      for (std::uint32_t more = 0; more < 3; ++more) at.push_back(choosing(k, n) + more - 1);
    for (std::uint32_t const threshold : at) {
      std::uint64_t all = 0;
      for (std::uint32_t part = 0; part < n; ++part) {
        shared words{};
        words[0] = choosing(part, n);  // the first member is only rotated
        auto const in_tile = correlated{}.for_worker(0, n).in_tile(words.data());
        std::uint64_t const below = words_below(in_tile, threshold);
        all += below;
        double const exact = std::clamp(threshold * 0x1p-32 * n - part, 0.0, 1.0);
        ASSERT_NEAR(static_cast<double>(below) * 0x1p-32, exact, n * 0x1p-31) << n << ' ' << part;
        ASSERT_EQ(in_tile.compared(12345, ~0U), ~in_tile.compared(12345, 0));
      }
      double const bias = static_cast<double>(all) / n - threshold;
      ASSERT_LE(std::abs(bias), 1.0) << n << ' ' << threshold;
    }
  }
}

/// The parts of all members: those in which they place a word of 0, times n.
std::vector<std::uint32_t> parts_of(std::uint32_t n, shared const& words) {
  std::vector<std::uint32_t> parts;
  for (std::uint32_t r = 0; r < n; ++r) {
    std::uint64_t const middle = correlated{}.for_worker(r, n).in_tile(words.data()).compared(0x80000000U, 0);
    parts.push_back(static_cast<std::uint32_t>((middle * n) >> 32));
  }
  return parts;
}

// One choice of each shared word for each of its equally probable values gives each permutation once.
TEST(Correlated, every_permutation_of_the_parts_is_equally_probable) {
  for (std::uint32_t n = 1; n <= 6; ++n) {
    std::map<std::vector<std::uint32_t>, int> seen;
    std::uint32_t choices = 1;
    for (std::uint32_t i = 2; i <= n; ++i) choices *= i;
    for (std::uint32_t c = 0; c < choices; ++c) {
      shared words{};
      words[0] = choosing(c % n, n);
      std::uint32_t rest = c / n;
      for (std::uint32_t i = n - 1; i > 1; --i, rest /= i + 1) words[i] = choosing(rest % i, i);
      ++seen[parts_of(n, words)];
    }
    EXPECT_EQ(seen.size(), choices) << n;
  }
}

TEST(Correlated, workers_of_a_cohort_take_different_parts) {
  for (std::uint32_t n = 1; n <= 16; ++n)
    for (std::uint64_t tile = 0; tile < 100; ++tile) {
      gq::random::shared_words const drawn({5, 9, 0, gq::random::purpose::share}, tile);
      shared words;
      for (std::uint32_t k = 0; k < 16; ++k) words[k] = drawn.data()[k];
      std::vector<std::uint32_t> parts = parts_of(n, words);
      std::sort(parts.begin(), parts.end());
      for (std::uint32_t p = 0; p < n; ++p) ASSERT_EQ(parts[p], p);
    }
}

TEST(Correlated, cohorts_hold_at_most_16_workers_and_differ_by_one) {
  for (std::uint32_t n : {1U, 2U, 16U, 17U, 31U, 32U, 33U, 48U, 49U, 1000U}) {
    std::map<std::uint32_t, int> sizes;
    for (std::uint32_t r = 0; r < n; ++r) ++sizes[correlated{}.for_worker(r, n).cohort()];
    EXPECT_EQ(sizes.size(), (n + 15) / 16);
    int least = 17, most = 0;
    for (auto const& [cohort, size] : sizes) {
      least = std::min(least, size);
      most = std::max(most, size);
      EXPECT_LT(cohort, sizes.size());
    }
    EXPECT_LE(most, 16);
    EXPECT_LE(most - least, 1);
  }
}

/// The variance of a sum of decisions with up-probabilities @p f, of workers whose parts are a random permutation.
/// @param gaps  the size of each decision; empty: 1
double variance_of_sum(std::vector<double> const& f, std::vector<double> const& gaps = {}) {
  auto const gap = [&](std::size_t i) { return gaps.empty() ? 1.0 : gaps[i]; };
  double const n = static_cast<double>(f.size());
  auto const in_part = [&](double a, double s) { return std::clamp(n * a - s, 0.0, 1.0); };
  double variance = 0;
  for (std::size_t i = 0; i < f.size(); ++i) {
    variance += gap(i) * gap(i) * f[i] * (1 - f[i]);
    for (std::size_t j = 0; j < f.size(); ++j) {
      if (j == i) continue;
      double both = 0;
      for (double s = 0; s < n; ++s) both += in_part(f[i], s) * in_part(f[j], s);
      variance += gap(i) * gap(j) * ((n * n * f[i] * f[j] - both) / (n * (n - 1)) - f[i] * f[j]);
    }
  }
  return variance;
}

/// The fraction of a gap that worker @p r has in coordinate @p i of each tile, and its sign and level.
struct value {
  double fraction;
  float x;
};
value value_of(int r, std::size_t i, bool equal) {
  std::uint32_t const word = gq::random::stream{77, 0, equal ? 0U : static_cast<std::uint32_t>(r)}.word(i);
  float const fraction = static_cast<float>(word >> 12) * 0x1p-20F, level = static_cast<float>(word & 3U);
  bool const negative = (word & 4U) != 0;
  // rounding up a magnitude is rounding down a negative value
  return {negative ? 1.0 - static_cast<double>(fraction) : static_cast<double>(fraction),
          negative ? -level - fraction : level + fraction};
}

/// What a call's sums of codes deviate from the exact sums, squared: mean over coordinates and tiles, with its
/// standard deviation over tiles; and the same of the deviations.
struct deviations {
  double square = 0, square_sigma = 0, mean = 0, mean_sigma = 0;
};
template <class Operator>
deviations measure(int n, Operator const& op, char const* schedule, bool equal, int tiles) {
  std::size_t const d = 256 * static_cast<std::size_t>(tiles);
  std::vector<float> y(d);
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    std::vector<float> x(d);
    for (std::size_t i = 0; i < d; ++i) x[i] = value_of(workers.rank(), i % 256, equal).x;
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 11}};
    mean(x, 4);
    if (workers.rank() == 0) y = x;
  });
  std::vector<double> squares, means;
  for (int t = 0; t < tiles; ++t) {
    double square = 0, sum = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      double exact = 0;
      for (int r = 0; r < n; ++r) exact += static_cast<double>(value_of(r, i, equal).x);
      double const error = static_cast<double>(y[256 * static_cast<std::size_t>(t) + i]) * n - exact;
      square += error * error / 256;
      sum += error / 256;
    }
    squares.push_back(square);
    means.push_back(sum);
  }
  auto const moments = [&](std::vector<double> const& v, double& mean, double& sigma) {
    for (double s : v) mean += s / static_cast<double>(v.size());
    for (double s : v) sigma += (s - mean) * (s - mean);
    sigma = std::sqrt(sigma) / static_cast<double>(v.size());
  };
  deviations found;
  moments(squares, found.square, found.square_sigma);
  moments(means, found.mean, found.mean_sigma);
  return found;
}

template <class Rounding>
auto grid(Rounding rounding) {
  return gq::quantizer{gq::norm::fixed{8.0}, gq::levels::uniform<8>{}, rounding, gq::wire::int8{}};
}

TEST(Correlated, the_variance_of_the_mean_is_that_of_a_random_permutation) {
  constexpr int tiles = 1500;
  for (bool equal : {false, true})
    for (int n : {1, 2, 3, 4, 5, 8, 9}) {
      double exact = 0, independent = 0;
      for (std::size_t i = 0; i < 256; ++i) {
        std::vector<double> f;
        for (int r = 0; r < n; ++r) {
          f.push_back(value_of(r, i, equal).fraction);
          independent += f.back() * (1 - f.back()) / 256;
        }
        exact += (n > 1 ? variance_of_sum(f) : f[0] * (1 - f[0])) / 256;
      }
      for (char const* schedule : {"native", "allgather"}) {
        deviations const found = measure(n, grid(correlated{}), schedule, equal, tiles);
        EXPECT_NEAR(found.square, exact, 5 * found.square_sigma + 1e-5)
            << n << ' ' << schedule << ' ' << equal;
        EXPECT_NEAR(found.mean, 0, 5 * found.mean_sigma + 1e-5) << n << ' ' << schedule << ' ' << equal;
      }
      if (n == 1) continue;
      // theory for uniform fractions: 2 / (1 + 1/n^2) of independent values; the 256 fractions are a sample
      if (!equal) {
        EXPECT_NEAR(independent / exact, 2 / (1 + 1.0 / (n * n)), 0.15) << n;
      }
      if (equal) {
        EXPECT_NEAR(independent / exact, n, 0.1 * n) << n;
      }
      deviations const without = measure(n, grid(gq::rounding::stochastic{}), "native", equal, tiles);
      EXPECT_NEAR(without.square, independent, 5 * without.square_sigma + 1e-5) << n;
    }
}

/// What all workers hold after a call.
template <class Operator, class Schedule>
std::vector<float> mean_of(int n, std::size_t d, Operator const& op, Schedule const& schedule) {
  std::vector<std::vector<float>> y(static_cast<std::size_t>(n), std::vector<float>(d));
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    auto& mine = y[static_cast<std::size_t>(workers.rank())];
    for (std::size_t i = 0; i < d; ++i) mine[i] = value_of(workers.rank(), i, false).x;
    gq::allreduce_mean mean{workers, op, schedule, gq::options{.seed = 11}};
    mean(mine, 2);
  });
  for (auto const& each : y) EXPECT_THAT(each, ::testing::ContainerEq(y[0]));
  return y[0];
}

TEST(Correlated, roundings_of_users_are_told_from_what_they_were_in_every_call) {
  on_threads(2, [](auto& workers) {
    std::vector<float> x(700), y = x, z = x;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(workers.rank(), i, false).x;
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean told{workers, grid(told_once(0)), gq::schedule::ring{},
                            gq::options{.seed = 1, .telemetry = &seen}},
        expected{workers, grid(gq::rounding::stochastic{}), gq::schedule::ring{}, gq::options{.seed = 1}},
        down{workers, grid(never_up{}), gq::schedule::ring{}, gq::options{.seed = 1}};
    for (std::uint64_t step : {1U, 2U, 3U}) {
      told(x, y, step);
      expected(x, z, step);
      EXPECT_EQ(y, z) << step;
      down(x, z, step);
      EXPECT_NE(y, z) << step;
    }
  });
}

/// A normal value of worker @p r; of the others it has a correlation @p rho.
float normal_value(int r, std::size_t i, double rho) {
  auto const draw = [i](std::uint32_t who) {
    gq::random::stream const words{91, 0, who};
    double const u = (words.word(2 * i) + 1.0) * 0x1p-32, v = words.word(2 * i + 1) * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
  };
  return static_cast<float>(std::sqrt(rho) * draw(1000) +
                            std::sqrt(1 - rho) * draw(static_cast<std::uint32_t>(r)));
}

/// Gains on normal vectors of 4,096 values under one norm, at 7 levels: measured errors are those of the exact law, which gains
/// what the specification measured in simulations.
template <class Levels>
void expect_gains(Levels const& levels, std::array<double, 3> const& independent_values,
                  std::array<double, 3> const& alike) {
  constexpr std::size_t d = 4096;
  constexpr int steps = 60;
  std::vector<double> grid_of;
  for (std::uint32_t c = 0; c <= levels.max_code(); ++c)
    grid_of.push_back(static_cast<double>(levels.value(c)) / static_cast<double>(levels.extent()));
  std::sort(grid_of.begin(), grid_of.end());
  for (double rho : {0.0, 0.99})
    for (int k = 0; k < 3; ++k) {
      int const n = 2 << k;
      std::vector<std::vector<float>> x(static_cast<std::size_t>(n), std::vector<float>(d));
      double top = 0;
      for (int r = 0; r < n; ++r)
        for (std::size_t i = 0; i < d; ++i) {
          x[static_cast<std::size_t>(r)][i] = normal_value(r, i, rho);
          top = std::max(top, static_cast<double>(std::abs(x[static_cast<std::size_t>(r)][i])));
        }
      double stochastic = 0, exact = 0;
      for (std::size_t i = 0; i < d; ++i) {
        std::vector<double> f, gaps;
        for (auto const& own : x) {
          double const t = std::abs(static_cast<double>(own[i])) / top;
          auto const above = std::upper_bound(grid_of.begin() + 1, grid_of.end() - 1, t);
          double const gap = *above - above[-1], up = (t - above[-1]) / gap;
          f.push_back(own[i] < 0 ? 1 - up : up);
          gaps.push_back(top * gap);
          stochastic += gaps.back() * gaps.back() * up * (1 - up);
        }
        exact += variance_of_sum(f, gaps);
      }
      double const gain = (rho == 0 ? independent_values : alike)[static_cast<std::size_t>(k)];
      EXPECT_NEAR(stochastic / exact, gain, 0.06 * gain) << n << " workers, correlation " << rho;
      std::vector<double> errors(steps);
      gq::quantizer const op{gq::norm::linf{}, levels, correlated{}, gq::wire::int8{}};
      on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
        gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 3}};
        std::vector<float> y(d);
        for (int step = 0; step < steps; ++step) {
          mean(x[static_cast<std::size_t>(workers.rank())], y, static_cast<std::uint64_t>(step));
          if (workers.rank() != 0) continue;
          for (std::size_t i = 0; i < d; ++i) {
            double sum = 0;
            for (auto const& own : x) sum += static_cast<double>(own[i]);
            errors[static_cast<std::size_t>(step)] += std::pow(n * static_cast<double>(y[i]) - sum, 2);
          }
        }
      });
      double measured = 0, sigma = 0;
      for (double e : errors) measured += e / steps;
      for (double e : errors) sigma += (e - measured) * (e - measured);
      sigma = std::sqrt(sigma) / steps;
      EXPECT_NEAR(measured, exact, 5 * sigma) << n << " workers, correlation " << rho;
      EXPECT_LT(sigma, 0.02 * exact);
    }
}

TEST(Correlated, gains_with_uniform_exponential_and_table_levels) {
  expect_gains(gq::levels::uniform<>{7}, {1.60, 1.89, 1.96}, {1.66, 2.20, 2.22});
  expect_gains(gq::levels::exponential<>{7}, {1.30, 1.40, 1.44}, {1.73, 2.58, 3.10});
  std::vector<double> even;
  for (int k = 0; k <= 7; ++k) even.push_back(k / 7.0);
  expect_gains(gq::levels::table{even}, {1.60, 1.89, 1.96}, {1.66, 2.20, 2.22});
}

/// What plans expect is what calls measure, for values whose fractions of gaps are uniform.
TEST(Correlated, plans_expect_the_gain_that_calls_have) {
  std::size_t const d = 256 * 200;
  auto const of = [](auto rounding) {
    return gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, rounding, gq::wire::int8{}};
  };
  auto const error = [&](int n, auto const& op) {
    auto const y = mean_of(n, d, op, gq::schedule::allgather{});
    double sum = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double exact = 0;
      for (int r = 0; r < n; ++r) exact += static_cast<double>(value_of(r, i, false).x) / n;
      sum += (static_cast<double>(y[i]) - exact) * (static_cast<double>(y[i]) - exact);
    }
    return sum;
  };
  for (int n : {1, 2, 3, 8, 17}) {
    gq::plan const p = gq::plan_for(of(correlated{}), gq::schedule::allgather{}, n, d);
    // 51,200 values in 200 tiles that share a permutation: 3 % is four standard deviations
    EXPECT_NEAR(error(n, of(gq::rounding::stochastic{})) / error(n, of(correlated{})),
                p.theta / p.expected_theta, 0.03 * p.theta / p.expected_theta)
        << n;
  }
  auto const gain = [](auto const& op, auto const& schedule, int n) {
    gq::plan const p = gq::plan_for(op, schedule, n, 4096);
    return p.theta / p.expected_theta;
  };
  EXPECT_DOUBLE_EQ(gain(of(correlated{}), gq::schedule::ring{}, 4), 2 / (1 + 1 / 16.0));  // codes add
  EXPECT_DOUBLE_EQ(gain(of(correlated{}), gq::schedule::hierarchical<gq::schedule::float32_sum>{2}, 4), 1.6);
  gq::quantizer const packed{gq::norm::linf{}, gq::levels::uniform<>{}, correlated{}, gq::wire::packed<4>{}};
  gq::quantizer const far{gq::norm::linf{}, gq::levels::exponential<>{}, correlated{}, gq::wire::int8{}};
  gq::quantizer const local{gq::norm::local<2>{128}, gq::levels::uniform<>{}, correlated{}, gq::wire::int8{}};
  EXPECT_EQ(gain(packed, gq::schedule::ring{}, 4), 1);  // sums are encoded again, by words of their own
  EXPECT_EQ(gain(far, gq::schedule::allgather{}, 4), 1);
  EXPECT_EQ(gain(local, gq::schedule::allgather{}, 4), 1);
  EXPECT_EQ(gain(of(gq::rounding::stochastic{}), gq::schedule::allgather{}, 4), 1);

  // scatter-reduce-allgather: three of four workers encode; their strata by the law
  double square = 0;
  constexpr int draws = 400'000;
  std::uint64_t seed = 1;
  auto const uniform = [&] {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(seed >> 11) * 0x1p-53;
  };
  for (int k = 0; k < draws; ++k) {
    int part[] = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(part[i], part[static_cast<int>(uniform() * (i + 1))]);
    double sum = 0;
    for (int r = 0; r < 3; ++r) {
      double const f = uniform(), u = (part[r] + uniform()) / 4;
      sum += (u < f ? 1 : 0) - f;
    }
    square += sum * sum / draws;
  }
  gq::detail::operator_facts const facts = gq::detail::facts_of(packed);
  gq::detail::schedule_facts const sra = gq::schedule::sra::facts(4);
  double const expected = gq::detail::expected_gain(facts, gq::detail::resolve(facts, sra, 4), sra, 4);
  EXPECT_NEAR(3 / 6.0 / square, expected, 0.01 * expected);  // the deviation of the mean of squares is 0.25 %
  EXPECT_LT(gain(packed, gq::schedule::sra{}, 4), expected);
  EXPECT_GT(gain(packed, gq::schedule::sra{}, 4), 1.05);
}

TEST(Correlated, telemetry_measures_the_errors_that_the_call_makes) {
  on_threads(3, [](auto& workers) {
    std::vector<float> x(256 * 20), y = x;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = workers.rank() == 1 ? value_of(1, i, false).x : 0.0F;
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{workers, grid(correlated{}), gq::schedule::native{},
                            gq::options{.seed = 1, .telemetry = &seen}};
    for (std::uint64_t step : {1U, 2U, 3U}) {
      mean(x, y, step);
      double error = 0, norm = 0;  // of worker 1: the others' zeros are exact
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const e = 3 * static_cast<double>(y[i]) - static_cast<double>(x[i]);
        error += e * e;
        norm += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
      double const reported = seen.take().normalized_error();
      if (workers.rank() == 1) {
        EXPECT_NEAR(reported, error / norm, 1e-4 * reported) << step;
      }
    }
  });
}

// Nodes encode sums of their workers: two nodes gain what two workers gain, 1.6.
TEST(Correlated, is_told_the_encoders_of_sums_of_nodes) {
  std::size_t const d = 256 * 200;
  auto const error = [&](auto rounding) {
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, rounding, gq::wire::int8{}};
    auto const y = mean_of(4, d, op, gq::schedule::hierarchical<gq::schedule::float32_sum>{2});
    double sum = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double exact = 0;
      for (int r = 0; r < 4; ++r) exact += static_cast<double>(value_of(r, i, false).x) / 4;
      sum += (static_cast<double>(y[i]) - exact) * (static_cast<double>(y[i]) - exact);
    }
    return sum;
  };
  EXPECT_NEAR(error(gq::rounding::stochastic{}) / error(correlated{}), 1.6, 0.05);
}

// Each worker of all_gather encodes for itself: decisions on equal shards are independent.
TEST(Correlated, all_gather_is_not_correlated) {
  constexpr int n = 4;
  std::size_t const d = 256 * 400;
  std::vector<float> all;
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    std::vector<float> x(d, 0.5F), y(n * d);
    gq::all_gather gather{workers, grid(correlated{}), gq::options{.seed = 11}};
    gather(x, y, 2);
    if (workers.rank() == 1) all = y;
  });
  double square = 0;
  for (std::size_t i = 0; i < d; ++i) {
    double sum = -2;
    for (std::size_t r = 0; r < n; ++r) sum += static_cast<double>(all[r * d + i]);
    square += sum * sum / static_cast<double>(d);
  }
  EXPECT_NEAR(square, n / 4.0, 0.02);  // 0 if correlated; standard deviation below 0.005
}

TEST(Correlated, frames_of_vector_codec_have_the_bits_of_a_call_of_as_many_workers) {
  auto const of = [](auto rounding) {
    return gq::quantizer{gq::norm::local<gq::infinity>{128}, gq::levels::uniform<>{}, rounding,
                         gq::wire::packed<3>{}};
  };
  auto const compare = [&](auto const& op) {
    for (std::uint32_t n = 1; n <= 5; ++n) {
      constexpr std::size_t d = 1000;
      auto const value = [&](std::uint32_t r, std::size_t i) {
        return static_cast<float>(static_cast<int>((i * 7919 + r * 31) % 2001) - 1000) * 0x1p-9F;
      };
      gq::vector_codec codec{op};
      std::vector<std::vector<std::byte>> frames;
      std::vector<gq::source> sources;
      std::vector<float> x(d), mean(d);
      for (std::uint32_t r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < d; ++i) x[i] = value(r, i);
        frames.emplace_back(codec.frame_bytes(d));
        codec.encode(x, {.seed = 9, .step = 4, .worker = r, .workers = n}, frames.back());
      }
      for (std::uint32_t r = 0; r < n; ++r) sources.push_back({frames[r], 1, static_cast<int>(r)});
      codec.mean(sources, {.seed = 9, .step = 4, .workers = n}, mean);
      on_threads(static_cast<int>(n), std::chrono::seconds{60}, [&](auto& workers) {
        std::vector<float> y(d);
        for (std::size_t i = 0; i < d; ++i) y[i] = value(static_cast<std::uint32_t>(workers.rank()), i);
        gq::allreduce_mean{workers, op, gq::schedule::allgather{}, {.seed = 9}}(y, 4);
        EXPECT_EQ(y, mean) << n;
      });
      EXPECT_THROW(codec.encode(x, {.worker = 2, .workers = 2}, frames[0]), gq::configuration_error);
      EXPECT_THROW(codec.encode(x, {.workers = 0}, frames[0]), gq::configuration_error);
      if (n > 2) {
        EXPECT_THROW(codec.mean(sources, {.seed = 9, .step = 4, .workers = 2}, mean),
                     gq::configuration_error);
      }
    }
  };
  compare(of(correlated{}));
  compare(of(gq::rounding::correlated_shift()));
  compare(of(gq::rounding::correlated_shift<false>()));
}

}  // namespace
}  // namespace globalq_test
