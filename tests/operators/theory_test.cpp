// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Each named operator keeps its theorem: unbiased, the exact variance, the bound and a vector that reaches it,
///        how many codes are not zero, and what is sent.
///
/// All seeds are fixed. A test of C comparisons fails when one of them lies beyond the level that C healthy ones pass but
/// for one chance in a million (Bonferroni): z with 2 C (1 - Phi(z)) = 1e-6.

#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>
#include <globalq/named/operators.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numbers>

namespace gq = globalq;
using namespace support;

namespace {

/// The operator without what a call adds: midpoints, residuals, another wire for sums. These have suites of their own.
gq::named::named_operator quantizer_named(std::string_view text) {
  gq::named::named_operator op = gq::named::read_operator(text);
  op.words.centered = false;
  op.words.feedback = 0;
  op.words.second.clear();
  return op;
}

using vectors = std::vector<std::vector<float>>;

/// Bell-shaped values of n workers.
vectors bell(int n, std::size_t d) {
  vectors x(static_cast<std::size_t>(n), std::vector<float>(d));
  for (int r = 0; r < n; ++r)
    for (std::size_t i = 0; i < d; ++i)
      x[static_cast<std::size_t>(r)][i] = value_at<float>(input::normal, 21, r, n, i, d);
  return x;
}

double energy(vectors const& x) {
  double sum = 0;
  for (auto const& v : x)
    for (float a : v) sum += static_cast<double>(a) * static_cast<double>(a);
  return sum;
}

std::vector<double> mean_of(vectors const& x) {
  std::vector<double> m(x[0].size(), 0.0);
  for (auto const& v : x)
    for (std::size_t i = 0; i < m.size(); ++i)
      m[i] += static_cast<double>(v[i]) / static_cast<double>(x.size());
  return m;
}

struct moments {
  std::vector<double> mean, square;  ///< of the error of each coordinate
  gq::plan plan;
  std::uint64_t bytes = 0;  ///< sent in the first call, by the busiest worker
  double nonzero = 0;       ///< values that are not zero, a call
};

moments sample(gq::named::description const& words, std::string const& schedule, vectors const& x,
               int steps) {
  std::size_t const d = x[0].size();
  std::vector<double> const center = mean_of(x);
  moments m;
  m.mean.assign(d, 0);
  m.square.assign(d, 0);
  gq::any_quantizer const op = gq::named::make(words);
  std::vector<std::uint64_t> bytes(x.size());
  gq::transport::threads cluster{static_cast<int>(x.size()), {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 20240913}};
    std::vector<float> y(d);
    for (int k = 0; k < steps; ++k) {
      std::uint64_t const before = workers.bytes_sent();
      mean(x[r], y, static_cast<std::uint64_t>(k));
      if (k == 0) bytes[r] = workers.bytes_sent() - before;
      if (r != 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        double const e = static_cast<double>(y[i]) - center[i];
        m.mean[i] += e / steps;
        m.square[i] += e * e / steps;
        m.nonzero += y[i] != 0 ? 1.0 / steps : 0.0;
      }
    }
    if (r == 0) m.plan = mean.plan(d);
  });
  m.bytes = *std::max_element(bytes.begin(), bytes.end());
  return m;
}

// ---- the exact variance, from the words and docs/theory.md alone

/// Levels as fractions of the scale, ascending; zero, or minus the smallest, in front.
std::vector<double> levels_of(std::string const& words, std::uint32_t size) {
  std::vector<double> l = {0};
  std::string const name = words.substr(0, words.find(':'));
  if (name == "uniform") {
    for (std::uint32_t k = 1; k <= size; ++k) l.push_back(static_cast<double>(k) / size);
  } else if (name == "exponential") {
    for (std::uint32_t k = size; k >= 1; --k) l.push_back(std::exp2(1.0 - k));
  } else if (name[0] == 'e') {  // e4m3: numbers in units of the smallest one, up to the largest
    unsigned const m = static_cast<unsigned>(name[3] - '0'),
                   reserved = name == "e4m3" ? 1 : (name == "e5m2" ? 4 : 0),
                   patterns = (1U << (static_cast<unsigned>(name[1] - '0') + m)) - reserved;
    for (unsigned k = 1; k < patterns; ++k) {
      unsigned const exponent = k >> m, mantissa = k % (1U << m);
      l.push_back(exponent == 0 ? mantissa
                                : std::ldexp((1U << m) + mantissa, static_cast<int>(exponent) - 1));
    }
    for (double const largest = l.back(); double& each : l) each /= largest;
  } else {
    std::string rest = words.substr(words.find(':') + 1);
    std::vector<double> given;
    for (std::size_t at = 0; at < rest.size();) {
      std::size_t used = 0;
      given.push_back(std::stod(rest.substr(at), &used));
      at += used + 1;
    }
    if (name == "symmetric") given.insert(given.begin(), -given[0]);
    l = given;
  }
  return l;
}

/// What values [first, end) of worker w are divided by.
double scale_of(gq::named::description const& words, vectors const& x, std::size_t w, std::size_t first,
                std::size_t end) {
  std::string norm = words.norm;
  if (norm.starts_with("fixed:")) return std::stod(norm.substr(6));
  bool const rounds = norm.starts_with("power-of-two:");
  if (rounds) norm = norm.substr(13);
  double step = 1;  // scales that are rounded up are this times a power of two
  if (norm == "shared-exponent") {
    std::map<std::string, double> const largest = {
        {"e2m1", 6}, {"e2m3", 7.5}, {"e3m2", 28}, {"e4m3", 448}, {"e5m2", 57344}};
    step = largest.at(words.levels);
    norm = "local:inf";
  }
  bool const two_level = norm == "two-level";
  if (two_level) norm = "local:inf";
  auto const order = [](std::string const& text) { return text == "inf" ? INFINITY : std::stod(text); };
  auto const length = [](std::vector<double> const& v, double q) {
    double sum = 0;
    for (double a : v) sum = std::isinf(q) ? std::max(sum, std::abs(a)) : sum + std::pow(std::abs(a), q);
    return std::isinf(q) ? sum : std::pow(sum, 1 / q);
  };
  auto const own = [&](std::size_t r, double q) {
    return length(std::vector<double>(x[r].begin() + static_cast<std::ptrdiff_t>(first),
                                      x[r].begin() + static_cast<std::ptrdiff_t>(end)),
                  q);
  };
  double scale = 0;
  if (norm.starts_with("local:")) {
    scale = own(w, order(norm.substr(6)));
  } else {
    double q = INFINITY, p = INFINITY;
    if (norm.starts_with("l:")) {
      q = order(norm.substr(2, norm.find(',') - 2));
      p = order(norm.substr(norm.find(',') + 1));
    }
    std::vector<double> all;
    for (std::size_t r = 0; r < x.size(); ++r) all.push_back(own(r, q));
    scale = length(all, p);
  }
  if (two_level) {  // 6 times the smallest E4M3 number that suffices, times 2^-11 of the vector's largest value
    double unit = 0;
    for (float v : x[w]) unit = std::max(unit, 6 * 0x1p-11 * std::abs(static_cast<double>(v)));
    std::vector<double> const numbers = levels_of("e4m3", 126);
    return 448 * unit * *std::lower_bound(numbers.begin(), numbers.end(), scale / (448 * unit));
  }
  return rounds || step != 1 ? step * std::exp2(std::ceil(std::log2(scale / step))) : scale;
}

/// The variance of a number that becomes one of its neighbors among 16-bit floats of @p digits bits.
double variance_of_float(double v, int digits, double smallest_gap) {
  double const gap = std::max(std::exp2(std::ilogb(v) + 1 - digits), smallest_gap),
               low = std::floor(v / gap) * gap;
  return (v - low) * (low + gap - v);
}
std::vector<double> variance_of_floats(std::string const& type, vectors const& x) {
  std::size_t const n = x.size(), d = x[0].size();
  double top = 0;
  for (auto const& v : x)
    for (float a : v) top = std::max(top, std::abs(static_cast<double>(a)));
  // the sum is below 2^15 if it grows by a factor of 2 by rounding up
  double const sum = std::exp2(std::ilogb(top) + 2 + std::ceil(std::log2(static_cast<double>(n))));
  bool const half = type == "float16";
  std::vector<double> variance(d, 0);
  for (auto const& v : x)
    for (std::size_t i = 0; i < d; ++i)
      if (v[i] != 0)
        variance[i] += variance_of_float(std::abs(static_cast<double>(v[i])), half ? 11 : 8,
                                         half ? 0x1p-24 * sum / 0x1p15 : 0) /
                       static_cast<double>(n * n);
  return variance;
}

/// The variance of each coordinate of the mean when every worker's encoding is the only rounding.
std::vector<double> exact_variance(gq::named::description const& words, vectors const& x,
                                   std::uint32_t size) {
  if (words.levels == "bfloat16" || words.levels == "float16") return variance_of_floats(words.levels, x);
  std::size_t const n = x.size(), d = x[0].size(), width = words.bucket == 0 ? d : words.bucket;
  std::vector<double> const l = levels_of(words.levels, size);
  std::vector<double> variance(d, 0);
  for (std::size_t first = 0; first < d; first += width) {
    std::size_t const end = std::min(first + width, d);
    if (words.tail == "float32" && end - first < width) break;  // not rounded
    for (std::size_t w = 0; w < n; ++w) {
      double const unit = scale_of(words, x, w, first, end), u = unit / static_cast<double>(n);
      for (std::size_t i = first; i < end; ++i) {
        double const y = std::min(std::abs(static_cast<double>(x[w][i])) / unit, 1.0);
        std::size_t k = l.size() - 2;
        while (k > 0 && l[k] > y) --k;
        variance[i] +=
            u * u *
            (words.rounding.ends_with("-shift") ? 1.0 / (12.0 * size * size) : (l[k + 1] - y) * (y - l[k]));
      }
    }
  }
  return variance;
}

double sum(std::vector<double> const& v) {
  double s = 0;
  for (double a : v) s += a;
  return s;
}

/// All rows of the table.
std::vector<std::string> all_examples() {
  std::vector<std::string> all;
  for (auto const& entry : gq::named::operators())
    for (auto const example : entry.examples) all.emplace_back(example);
  return all;
}

bool is_unbiased(gq::named::description const& words) {
  return words.rounding != "nearest" && words.levels != "none";
}

constexpr int worker_counts[] = {1, 2, 3, 5};

}  // namespace

TEST(Theory, every_operator_is_unbiased_and_has_its_exact_variance) {
  constexpr int steps = 300;
  constexpr std::size_t d = 240;
  double const z = threshold(static_cast<double>(all_examples().size() * d * std::size(worker_counts)));
  for (std::string const& name : all_examples()) {
    auto const op = quantizer_named(name);
    if (!is_unbiased(op.words) || op.words.rotate != 0 || op.words.eden)
      continue;  // rotated values: few_bits_test
    for (int n : worker_counts) {
      vectors const x = bell(n, d);
      moments const m = sample(op.words, "allgather", x, steps);
      std::vector<double> const variance = exact_variance(op.words, x, m.plan.levels);
      for (std::size_t i = 0; i < d; ++i)  // 2^-21: t and the result are rounded to float32
        ASSERT_LE(std::abs(m.mean[i]), z * std::sqrt(variance[i] / steps) + 0x1p-21)
            << name << " with " << n << " workers, coordinate " << i;
      // as many independent draws as there are words: four coordinates share one; a bucket with random shift
      std::size_t const buckets = op.words.bucket == 0 ? 1 : (d + op.words.bucket - 1) / op.words.bucket;
      double const draws =
          steps * (op.words.rounding == "stochastic" ? d / 4.0 : 2.0 * static_cast<double>(buckets));
      // a ternary error may have its mean square N^2 times its fourth power: 1 / y, here below 20
      EXPECT_NEAR(sum(m.square) / sum(variance), 1.0, 6 * std::sqrt(4 / draws)) << name << ", " << n;
    }
  }
}

TEST(Theory, the_plan_bounds_the_variance_on_every_schedule_that_fits) {
  constexpr int steps = 60;
  constexpr std::size_t d = 700;
  int called = 0;
  for (std::string const& name : all_examples()) {
    auto const op = quantizer_named(name);
    if (!is_unbiased(op.words)) continue;
    for (char const* schedule : {"ring", "tree", "sra", "allgather", "native"})
      for (int n : worker_counts) {
        if (!gq::plan_for(gq::named::make(op.words), gq::schedule::any{schedule}, n, d).fits) continue;
        vectors const x = bell(n, d);
        moments const m = sample(op.words, schedule, x, steps);
        ++called;
        if (std::isnan(
                m.plan.theta)) {  // an absolute grid is bounded by itself: delta^2 / 12 a value and worker
          double const unit = std::stod(op.words.norm.substr(6)), delta = unit / m.plan.levels;
          EXPECT_LE(sum(m.square), d * delta * delta / (12.0 * n) * (1 + 6 * std::sqrt(2.0 / (2.0 * steps))))
              << name << " on " << schedule << " with " << n;
          continue;
        }
        EXPECT_LE(sum(m.square), m.plan.theta / n * energy(x) * (1 + 6 * std::sqrt(2.0 / (2.0 * steps))))
            << name << " on " << schedule << " with " << n;
      }
  }
  EXPECT_GE(called, 20 * 3 * 4);
}

namespace {

/// A vector that comes close to a bound: values equal to @p small, the first @p ones equal to 1.
struct extreme {
  std::string name;
  std::size_t length;
  double small;
  std::size_t ones;
  double share;  ///< of the bound, derived beside it
};

}  // namespace

TEST(Theory, bounds_are_reached_up_to_a_stated_share) {
  constexpr std::size_t d = 4096;  // sqrt(d) = 64
  std::vector<extreme> const cases = {
      // y = 1/sqrt(D) below 1/s: N^2 (sqrt(D)/s - 1) of sqrt(D)/s
      {"qsgd:4,bucket=0", d, 1, 0, 1 - 7.0 / 64},
      {"global-uniform:8,levels=1,q=2,p=2", d, 1, 0, 1 - 1.0 / 64},
      // y = 1/sqrt(D) = 1/2s: every value is in the middle of two levels, D/4s^2 exactly
      {"qsgd:8,bucket=0,levels=32", d, 1, 0, 1},
      {"global-uniform:8,levels=32,q=2,p=2", d, 1, 0, 1},
      // one value of N, all others N/sqrt(D): (D - 1) (1 - 1/64) / 64 over 2 - 1/D, of sqrt(D): about a half
      {"terngrad", d, 1.0 / 64, 1, 4095.0 / 64 * (63.0 / 64) / (64 * (2 - 1.0 / d))},
      // the middle of the lowest gap under one value of N: D/4s^2 N^2 over N^2 (1 + D/4s^2)
      {"cgx:4,bucket=0", 128, 1.0 / 14, 1, 127.0 / 128 / (1 + 127.0 / 196)},
      // 4/3 times powers of two: (1 - 2/3) (2/3 - 1/2) / (2/3)^2 = 1/8
      {"natural-compression", d, 4.0 / 3, 0, 1},
      {"natural-compression:local", d, 4.0 / 3, 0, 1},
      // y = 1/sqrt(D) below 2^(1-s) = 1/4 with s = 3: N^2 (sqrt(D)/4 - 1) of 1/8 + sqrt(D)/4
      {"nuqsgd:3,bucket=0", d, 1, 0, (16.0 - 1) / (16 + 0.125)},
      {"natural-dithering:3,q=2", d, 1, 0, (16.0 - 1) / (16 + 0.125)},
      {"global-exponential:8,levels=3,q=2,p=2", d, 1, 0, (16.0 - 1) / (16 + 0.125)},
      // the middle of the lowest gap of a binade: 1/4 of 128.5^2 and 1024.5^2 squared gaps, of 2^-16 and 2^-22
      {"bfloat16", d, 257.0 / 256, 0, 0x1p14 / (128.5 * 128.5)},
      {"float16", d, 2049.0 / 2048, 0, 0x1p20 / (1024.5 * 1024.5)},
      // delta^2/12 of every value whatever it is, and the norm is all the energy
      {"qsdp:8,bucket=0", d, 0, 1, 1},
      // without shifting back that of stochastic rounding: the case of cgx, s = 127
      {"qsdp:4,shift-back=no,bucket=0", 128, 1.0 / 14, 1, 127.0 / 128 / (1 + 127.0 / 196)},
      // l_1^2 for each zero
      {"amq:3,bucket=0", d, 0, 1, (d - 1.0) / 64 / (d / 64.0 + 0.125)},
      // y = 1/64 below l_1 = 1/4: y (1/4 - y) D = 15, which the infimum over p is for equal values; and (r-1)^2/4r = 1/8
      {"alq:3,bucket=0", d, 1, 0, 15 / 15.125}};
  for (extreme const& each : cases) {
    auto const op = quantizer_named(each.name);
    vectors x(1, std::vector<float>(each.length, static_cast<float>(each.small)));
    std::fill_n(x[0].begin(), each.ones, 1.0F);
    moments const m = sample(op.words, "allgather", x, 40);
    double const bound = m.plan.theta * energy(x);
    double const exact = sum(exact_variance(op.words, x, m.plan.levels));
    EXPECT_LE(exact, bound * (1 + 1e-6)) << each.name;
    EXPECT_NEAR(exact / bound, each.share, 0.001 + 1e-5 * each.share)
        << each.name << ": " << exact << " of " << bound;
    // what is measured is the exact variance: 40 times thousands of values, or 40 shared words of variance 4/5
    double const draws = op.words.rounding == "stochastic" ? 40.0 * static_cast<double>(each.length) / 4 : 40;
    EXPECT_NEAR(sum(m.square) / exact, 1.0, 6 * std::sqrt(16 / draws)) << each.name;
  }
}

TEST(Theory, expected_non_zero_codes_reach_s_sqrt_D_and_exceed_what_was_printed) {
  // spec 5: sum min(1, y / l_1) <= sqrt(D) / l_1 under l<2,2>, reached by equal values; the printed s^2 + sqrt(D) is false
  struct sparse {
    std::string name;
    double first, printed;
  };
  constexpr std::size_t d = 10000;  // of one worker
  for (sparse const& each : std::vector<sparse>{{"global-uniform:8,levels=5,q=2,p=2", 5, 25},
                                                {"qsgd:8,bucket=0,levels=5", 5, 25},
                                                {"global-exponential:8,levels=4,q=2,p=2", 8, 64},
                                                {"nuqsgd:8,bucket=0,levels=4", 8, 64}}) {
    auto const op = quantizer_named(each.name);
    double const root = std::sqrt(static_cast<double>(d)), bound = each.first * root;
    constexpr int steps = 100;
    // the count is a sum of d / 4 independent groups of four: at most four times the variance of a Poisson number
    double const spread = 6 * std::sqrt(4 * bound / steps);
    double const equal =
        sample(op.words, "allgather", vectors(1, std::vector<float>(d, 0.75F)), steps).nonzero;
    EXPECT_NEAR(equal, bound, spread) << each.name;
    EXPECT_GT(equal, each.printed + root + spread) << each.name;
    EXPECT_LE(sample(op.words, "allgather", bell(1, d), steps).nonzero, bound + spread) << each.name;
  }
}

TEST(Theory, what_is_sent_is_what_the_plan_and_the_format_say) {
  constexpr std::size_t d = 3000;
  for (std::string const& name : all_examples()) {
    auto const op = quantizer_named(name);
    gq::any_quantizer const quantizer = gq::named::make(op.words);
    for (int n : worker_counts) {
      vectors const x = bell(n, d);
      moments const m = sample(op.words, op.schedule, x, 1);
      if (m.plan.bytes_are_most) {  // frames differ in length: the plan is what they are no longer than
        EXPECT_LE(m.bytes, m.plan.bytes_sent) << name << " with " << n;
        EXPECT_EQ(m.bytes > 0, n > 1) << name;
        continue;
      }
      EXPECT_EQ(m.bytes, m.plan.bytes_sent) << name << " with " << n;
      moments const all = sample(op.words, "allgather", x, 1);
      // header, scales of local norms padded to 16 bytes, codes
      int const bits = op.words.levels == "none" ? 32 : quantizer.facts().wire_bits;
      std::uint64_t const buckets =
          !quantizer.facts().local ? 0
                                   : (op.words.bucket == 0 ? 1 : (d + op.words.bucket - 1) / op.words.bucket);
      bool const two_level = op.words.norm == "two-level";
      std::uint64_t const scale_bytes = op.words.norm == "shared-exponent" || two_level ? 1 : 4;
      std::uint64_t const frame = 16 + (scale_bytes * buckets + (two_level ? 4 : 0) + 15) / 16 * 16 +
                                  (d * static_cast<std::uint64_t>(bits) + 7) / 8;
      EXPECT_EQ(all.plan.bits_per_value, 8.0 * static_cast<double>(frame) / d) << name;
      bool const exchanged = op.words.bucket != 0 && !quantizer.facts().local;
      if (!exchanged) {
        EXPECT_EQ(all.bytes, static_cast<std::uint64_t>(n - 1) * (frame + 64)) << name << " with " << n;
      }
    }
  }
}

TEST(NaturalCompression, every_value_becomes_a_power_of_two_next_to_it) {
  auto const check = [](auto type, std::string const& name) {
    using value = decltype(type);
    gq::vector_codec codec(gq::named::make(quantizer_named(name).words));
    for (int exponent : {0, -9, 10}) {
      std::vector<value> x(1500), y(x.size());
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = value_from<value>(to_double(value_at<float>(input::normal, 5, 0, 1, i, 1500)) *
                                 std::exp2(exponent));
      for (std::uint64_t step = 0; step < 20; ++step) {
        std::vector<std::byte> frame(codec.frame_bytes(x.size(), gq::dtype_of<value>::value));
        codec.encode(x, {3, step, 0}, frame);
        codec.decode(frame, {3, step, 0}, y);
        for (std::size_t i = 0; i < x.size(); ++i) {
          double const v = to_double(x[i]), w = to_double(y[i]);
          int e = 0;
          double const mantissa = std::frexp(v, &e);
          if (std::abs(mantissa) == 0.5 || v == 0) {
            ASSERT_EQ(v, w) << name;
          } else {
            ASSERT_TRUE(std::abs(w) == std::exp2(e) || std::abs(w) == std::exp2(e - 1)) << v << " to " << w;
          }
          ASSERT_TRUE(v == 0 || std::signbit(v) == std::signbit(w));
        }
      }
    }
  };
  for (char const* name : {"natural-compression", "natural-compression:local,bucket=64",
                           "natural-compression:local,bucket=100", "natural-compression:local,bucket=5000"}) {
    check(float{}, name);
    check(double{}, name);
    check(gq::float16{}, name);
    check(gq::bfloat16{}, name);
  }
}

TEST(NaturalCompression, below_the_last_level_values_are_rounded_to_zero_or_to_it) {
  // 127 levels: from 1 to 2^-126; of 2^-128 one in four survives, as 2^-126
  std::vector<float> x(8192, 0x1p-128F), y(x.size());
  x[0] = 1.0F;
  gq::vector_codec codec(gq::operators::natural_compression());
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  codec.encode(x, {1, 1, 0}, frame);
  codec.decode(frame, {1, 1, 0}, y);
  int hits = 0;
  for (std::size_t i = 1; i < x.size(); ++i) {
    ASSERT_TRUE(y[i] == 0 || y[i] == 0x1p-126F) << i << ": " << y[i];
    hits += y[i] != 0 ? 1 : 0;
  }
  // of 8,191 with probability 1/4; neighbors of four share a word, so at most four times the variance
  EXPECT_NEAR(hits, 8191 / 4.0, 6 * std::sqrt(4 * 8191 * 3.0 / 16));
}

TEST(NaturalCompression, sums_are_powers_of_two_as_well) {
  // two workers: the mean is half a power of two, whether codes are added or sums are encoded again
  for (char const* name :
       {"natural-compression", "natural-compression,bucket=100", "natural-compression:local",
        "natural-compression:local,bucket=100", "natural-compression:local,bucket=5000"})
    for (char const* schedule : {"ring", "tree", "sra"}) {
      vectors const x = bell(2, 12000);
      auto const words = quantizer_named(name).words;
      gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{60}}};
      cluster.run([&](auto& workers) {
        gq::allreduce_mean mean{workers, gq::named::make(words), gq::schedule::any{schedule}};
        std::vector<float> y = x[static_cast<std::size_t>(workers.rank())];
        mean(y, 1);
        for (float v : y) {
          int e = 0;
          ASSERT_TRUE(v == 0 || std::abs(std::frexp(v, &e)) == 0.5F)
              << name << " on " << schedule << ": " << v;
        }
      });
    }
}

TEST(RoundingToNearest, is_biased_and_at_most_half_a_gap_off) {
  auto const op = quantizer_named("cgx:4,rounding=nearest");
  constexpr std::size_t d = 512;
  for (int n : worker_counts) {
    vectors const x = bell(n, d);
    moments const once = sample(op.words, "allgather", x, 1), often = sample(op.words, "allgather", x, 10);
    EXPECT_TRUE(std::isnan(once.plan.theta));
    for (std::size_t first = 0; first < d; first += 128) {
      double half = 0;  // of a gap, on average over the workers
      for (std::size_t w = 0; w < x.size(); ++w)
        half += scale_of(op.words, x, w, first, first + 128) / 14 / n;
      for (std::size_t i = first; i < first + 128; ++i) {
        EXPECT_LE(std::abs(once.mean[i]), half * (1 + 0x1p-20)) << i;
        // more steps do not average the error away
        EXPECT_NEAR(often.mean[i], once.mean[i], 1e-12) << i;
      }
    }
    EXPECT_GT(sum(once.square), 0);
  }
}

// ---- sums of exponential codes: their distribution, by enumerating the words of reduce::exponential

namespace {

/// Probabilities of codes; code e with its sign is +-2^-e, 0 is zero.
using distribution = std::map<int, double>;
using additions = std::vector<std::pair<int, int>>;

/// The sum of two independent codes. If they differ by delta, only the low delta bits of the word decide.
distribution sum_of(distribution const& a, distribution const& b) {
  distribution sum;
  for (auto const& [x, p] : a)
    for (auto const& [y, q] : b) {
      std::uint32_t const words = 1U << std::abs(std::abs(x) - std::abs(y));
      for (std::uint32_t w = 0; w < words; ++w)
        sum[gq::reduce::exponential::add<std::int8_t>(static_cast<std::int8_t>(x),
                                                      static_cast<std::int8_t>(y), w)] += p * q / words;
    }
  return sum;
}

/// The sum of all workers' codes, in the order of a schedule's additions.
distribution sum_over(additions const& order, std::vector<distribution> codes) {
  for (auto const& [into, from] : order) {
    auto& sum = codes[static_cast<std::size_t>(into)];
    sum = sum_of(sum, codes[static_cast<std::size_t>(from)]);
  }
  return codes[static_cast<std::size_t>(order.back().first)];
}

double value_of(int code) { return code == 0 ? 0 : std::copysign(std::exp2(-std::abs(code)), code); }

double moment(distribution const& d, double center, int order) {
  double sum = 0;
  for (auto const& [code, p] : d) sum += p * std::pow(value_of(code) - center, order);
  return sum;
}

std::vector<distribution> certain(std::vector<int> const& codes) {
  std::vector<distribution> all;
  for (int const code : codes) all.push_back({{code, 1.0}});
  return all;
}

additions additions_of(std::string const& schedule, int n) {
  return schedule == "ring" ? gq::schedule::ring::additions(n) : gq::schedule::tree::additions(n);
}

/// Codes of workers with values sign 2^-exponent: such that no sum on the way exceeds 1/2.
std::vector<int> with_headroom(std::vector<int> const& exponents, int height) {
  std::vector<int> codes;
  for (int const e : exponents) codes.push_back(e < 0 ? e - height - 1 : e + height + 1);
  return codes;
}

}  // namespace

TEST(ExponentialSums, of_positive_values_have_more_variance_than_the_published_growth_allows) {
  // Xin et al., section 4: iterations grow by 1 + n^1.17 (1 / 8n + sqrt(d) / (sqrt(n) 2^(s-1))), whose last term is
  // below 1e-30 for the 125 levels here. All values are levels: encoding adds nothing.
  struct example {
    std::vector<int> exponents;  ///< worker i has 2^-exponent
    double n_theta;
  };
  for (example const& each :
       {example{{0, 1}, 0.2}, example{{0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2}, 2.08}}) {
    int const n = static_cast<int>(each.exponents.size());
    int const h = gq::log2_ceil(static_cast<std::uint64_t>(n));
    std::vector<int> const codes = with_headroom(each.exponents, h);
    distribution const sum = sum_over(gq::schedule::tree::additions(n), certain(codes));
    double exact = 0, squares = 0;
    for (int const code : codes) exact += value_of(code), squares += value_of(code) * value_of(code);
    ASSERT_DOUBLE_EQ(moment(sum, 0, 1), exact) << n;
    double const variance = moment(sum, exact, 2);
    EXPECT_DOUBLE_EQ(variance / squares, each.n_theta) << n;
    EXPECT_GT(each.n_theta, std::pow(n, 0.17) / 8) << "published, " << n;

    constexpr std::size_t d = 4096;
    constexpr int steps = 10;
    vectors x;
    for (int const e : each.exponents) x.emplace_back(d, std::exp2(-static_cast<float>(e)));
    moments const m = sample(quantizer_named("global-exponential").words, "tree", x, steps);
    EXPECT_LE(each.n_theta, n * m.plan.theta) << n;
    // of d / 4 independent groups per step, whose four errors may all be equal
    double const deviation =
        std::sqrt((moment(sum, exact, 4) - variance * variance) / (steps * d / 4.0)) / squares;
    EXPECT_NEAR(n * n * ::sum(m.square) / energy(x), each.n_theta, 6 * deviation + 1e-12) << n;
  }
}

TEST(ExponentialSums, that_cancel_grow_by_more_than_9_over_8_per_addition) {
  // 2^-8 + 2^-9 - 2^-7 on a chain: twice the second moment of the exact sum, where (9/8)^2 is 1.27
  distribution const sum = sum_over(gq::schedule::ring::additions(3), certain({8, 9, -7}));
  EXPECT_DOUBLE_EQ(moment(sum, 0, 1), -std::exp2(-9));
  EXPECT_DOUBLE_EQ(moment(sum, 0, 2), 2 * std::exp2(-18));
}

TEST(ExponentialSums, of_any_signs_stay_within_the_bound_of_the_plan) {
  std::uint32_t state = 7;
  auto const next = [&state] { return (state = state * 1664525U + 1013904223U) >> 16; };
  gq::any_quantizer const op = gq::named::make(quantizer_named("global-exponential").words);
  double closest = 0;
  for (char const* schedule : {"ring", "tree"})
    for (int n = 2; n <= 6; ++n) {
      double const bound = n * gq::plan_for(op, gq::schedule::any{schedule}, n, 1).theta;
      for (int k = 0; k < 40; ++k) {
        std::vector<int> codes;
        for (int i = 0; i < n; ++i)
          codes.push_back((next() % 3 == 0 ? -1 : 1) * static_cast<int>(n + next() % 3));
        distribution const sum = sum_over(additions_of(schedule, n), certain(codes));
        double exact = 0, squares = 0;
        for (int const code : codes) exact += value_of(code), squares += value_of(code) * value_of(code);
        ASSERT_NEAR(moment(sum, 0, 1), exact, 1e-15) << schedule << ' ' << n;
        double const n_theta = moment(sum, exact, 2) / squares;
        ASSERT_LE(n_theta, bound) << schedule << ' ' << n;
        closest = std::max(closest, n_theta / bound);
      }
    }
  EXPECT_GT(closest, 0.5);
}

TEST(ExponentialSums, scaled_by_2n_lose_maxima_except_on_balanced_trees_over_a_power_of_two) {
  // n equal maxima, divided by 2n as published: code 0 of a sum that exceeds 1/2 means zero
  auto const lost = [](std::string const& schedule, std::vector<distribution> const& codes) {
    distribution const sum = sum_over(additions_of(schedule, static_cast<int>(codes.size())), codes);
    return sum.contains(0) ? sum.at(0) : 0.0;
  };
  EXPECT_EQ(lost("tree", certain({3, 3, 3, 3})), 0);
  EXPECT_DOUBLE_EQ(lost("ring", certain({3, 3, 3, 3})), 1.0 / 8);
  // 1/6 is encoded as 1/4 with probability 1/3, else as 1/8
  EXPECT_DOUBLE_EQ(lost("tree", std::vector<distribution>(3, {{2, 1.0 / 3}, {3, 2.0 / 3}})), 1.0 / 9);
  // the headroom that plans keep
  gq::any_quantizer const op = gq::named::make(quantizer_named("global-exponential").words);
  for (char const* schedule : {"ring", "tree"})
    for (int n = 2; n <= 6; ++n) {
      auto const h = static_cast<int>(gq::plan_for(op, gq::schedule::any{schedule}, n, 1).headroom);
      EXPECT_EQ(lost(schedule, certain(std::vector<int>(static_cast<std::size_t>(n), h + 1))), 0)
          << schedule << ' ' << n;
    }
}

TEST(Theory, q_is_the_order_of_the_norm_within_a_worker_and_p_over_the_workers) {
  // one level: results are multiples of the norm over n. Xin et al., section 2; section 3.1 exchanges p and q.
  vectors const x = {{3, 4, 0}, {1, 1, 1}};
  struct order {
    char const* operator_name;
    double norm, exchanged;
  };
  for (order const& each :
       {order{"global-uniform:8,levels=1,q=1,p=3", std::cbrt(7 * 7 * 7 + 3 * 3 * 3.0),
              std::cbrt(std::cbrt(27 + 64.0) + std::cbrt(3.0))},
        order{"global-uniform:8,levels=1,q=2,p=1", 5 + std::sqrt(3.0), 7 * 7 + 3 * 3.0}}) {
    double smallest = INFINITY;
    for (std::uint64_t step = 0; step < 20; ++step) {
      gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{60}}};
      cluster.run([&](auto& workers) {
        gq::allreduce_mean mean{workers, gq::named::make(quantizer_named(each.operator_name).words),
                                gq::schedule::allgather{}};
        std::vector<float> y = x[static_cast<std::size_t>(workers.rank())];
        mean(y, step);
        if (workers.rank() != 0) return;
        for (float const v : y)
          if (v != 0) smallest = std::min(smallest, static_cast<double>(v));
      });
    }
    EXPECT_NEAR(2 * smallest, each.norm, 1e-6 * each.norm) << each.operator_name;
    EXPECT_GT(std::abs(each.exchanged - each.norm), 0.3 * each.norm);
  }
}
