// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief check: whether the means of an operator are unbiased, and their variance within the bound of the plan.
///
/// K calls average the same vectors with other random bits. The mean error of a value in the K calls is compared with
///
///     z s / sqrt(K) + 7 z^2 W / (6 (K - 1)),    z = sqrt(2 ln(4 C / false_alarm)),
///
/// where s is the standard deviation of its errors in the K calls, W the widest range of the errors of any value, and C the
/// number of comparisons (Bonferroni). There is one for each value, one for the vector as a whole (does it shrink or
/// grow? the error times the mean, over the mean's square) and one for the sum of the values (do they drift to one side?).
/// The last two, each with a W of its own, add the evidence of all values: they find a small bias that all have.
///
/// The first term is a z-test; z is 6.5 for 300 values and one false alarm in a million, where normal errors would need 6.0.
/// The second term is for rare outcomes: a value far below the first level becomes that level in few calls, and the s of a
/// sample that lacks them is too small, so that a z-test alone gives false alarms. 2^-20 of the largest magnitude is
/// allowed on top, for rounding to float32.
///
/// The bound is a theorem, for errors of any distribution, if W is known beforehand. Here it is the widest range seen, so that
/// the probability of a false alarm is assumed and not proven: that no error goes far beyond it. It fails where an outcome is so
/// rare that no value has it in any call. All results are then the same, and cannot be told from a biased rounding.
///
/// Power: a bias that exceeds this limit by 2.33 standard errors, a quantile of the normal distribution, is found with a
/// probability of 0.99. Reports state it for the value where it is largest, and for the whole vector. W differs between runs;
/// of biases along the vector, of the size that runs state in the median, 385 of 400 were found with 1,000 calls, 199 of 200 with
/// 4,000, and 59 of 60 with 20,000.
/// @source Maurer and Pontil 2009, theorem 4 (empirical Bernstein bound)

#include "../collective/allreduce_mean.hpp"
#include "../operator/any_quantizer.hpp"
#include "../operator/stage.hpp"
#include "../plan/plan.hpp"
#include "../schedule/allgather.hpp"
#include "../transport/threads.hpp"
#include "report.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::check {

/// What unbiased() found. Biases are shares of the norm of the mean of the vectors.
struct bias_report : report {
  std::uint64_t calls = 0;
  std::uint64_t comparisons = 0;
  /// Of the value, or the sum of all, that is closest to its limit or beyond it: its mean error and its limit in standard
  /// errors, and the former as a share of the latter; above 1 it is biased. Standard errors are infinite if results never change.
  double largest_z = 0, threshold = 0, share = 0;
  double bias = 0;          ///< measured, of all values together; what chance explains is taken off
  double growth = 0;        ///< measured, along the vector: -0.01 if results are 1 % shorter
  double finds = 0;         ///< smallest bias of any one value that is found with probability 0.99
  double finds_z = 0;       ///< the same in standard errors of that value
  double finds_growth = 0;  ///< smallest growth that is found with probability 0.99
};

/// What variance() found.
struct variance_report : report {
  double measured = 0;  ///< E||result - mean||^2
  double bound = 0;     ///< that of the plan: (theta / n) sum_i ||x_i||^2; NaN: none
  double share = 0;     ///< measured / bound
  double finds = 0;     ///< smallest share above 1 that is found with probability 0.99
};

namespace detail {

/// Of a normal distribution: 0.99 of it is below.
inline constexpr double quantile_99 = 2.3263478740408408;

/// A number that is drawn in each call.
struct tally {
  double calls = 0, sum = 0, squares = 0, low = 0, high = 0;
  bool constant = true;
  double first = 0;

  void add(double x) {
    if (calls == 0) first = x;
    constant = constant && x == first;
    calls += 1;
    sum += x;
    squares += x * x;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  double mean() const { return sum / calls; }
  double variance() const {
    return constant ? 0 : std::max(0.0, (squares - sum * sum / calls) / (calls - 1));
  }
  double standard_error() const { return std::sqrt(variance() / calls); }
  double range() const { return high - low; }  ///< of an error, that of zero included
};

/// The errors of K calls.
struct sample {
  std::vector<tally> errors;  ///< of each coordinate
  tally along, sum;           ///< as shares: of the vector, and of the sum of magnitudes
  tally squares;              ///< ||result - mean||^2
  double norm = 0;            ///< of the mean
  double largest = 0;         ///< magnitude of all workers' values
  double energy = 0;          ///< sum_i ||x_i||^2
  int workers = 0;
  std::string schedule;
  plan planned;
  std::string error;  ///< what a call threw
};

/// Normal values whose standard deviations are 1, 1/2, .. 1/32, the smallest half as frequent again as the others together.
inline std::vector<std::vector<float>> vectors_of(settings const& how) {
  if (!how.vectors.empty()) {
    for (auto const& each : how.vectors)
      if (each.size() != how.vectors[0].size())
        throw configuration_error(
            "globalq: check: vectors have different lengths; pass one length for all workers");
    return how.vectors;
  }
  std::vector<std::vector<float>> x(static_cast<std::size_t>(std::max(1, how.workers)),
                                    std::vector<float>(how.length));
  std::uint64_t state = how.seed;
  auto const next = [&state] {  // SplitMix64
    std::uint64_t z = state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  for (auto& each : x)
    for (float& v : each) {
      std::uint64_t const bits = next();
      int sum = -2 * 65535;
      for (int k = 0; k < 64; k += 16) sum += static_cast<int>((bits >> k) & 0xffffU);
      v = std::ldexp(static_cast<float>(sum) / 37837.0F, std::min(std::countr_zero(next()), 5) - 5);
    }
  return x;
}

template <class Schedule>
sample sampled(any_quantizer const& op, Schedule const& schedule, settings const& how) {
  std::vector<std::vector<float>> const x = vectors_of(how);
  std::size_t const n = x.size(), d = x[0].size();
  sample s;
  s.workers = static_cast<int>(n);
  s.schedule = schedule.facts(s.workers).name;
  s.planned = plan_for(op, schedule, s.workers, d);
  if (!s.planned.fits) throw configuration_error(s.planned.refusal);
  if (d == 0 || how.calls < 2)
    throw configuration_error(
        "globalq: check: nothing to test; use vectors of at least one value, and at least 2 calls");
  std::vector<double> exact(d, 0);
  double magnitudes = 0;
  for (auto const& each : x)
    for (std::size_t i = 0; i < d; ++i) {
      double const v = static_cast<double>(each[i]);
      exact[i] += v / static_cast<double>(n);
      s.energy += v * v;
      s.largest = std::max(s.largest, std::fabs(v));
    }
  for (double const v : exact) s.norm += v * v, magnitudes += std::fabs(v);
  if (s.norm == 0) throw configuration_error("globalq: check: the mean of the vectors is zero; pass others");
  s.errors.resize(d);
  try {
    transport::threads cluster{s.workers, {.deadline = std::chrono::seconds{60}}};
    cluster.run([&](auto& workers) {
      auto const rank = static_cast<std::size_t>(workers.rank());
      allreduce_mean mean{workers, op, schedule, {.seed = how.seed}};
      std::vector<float> y(d);
      for (std::uint64_t step = 0; step < how.calls; ++step) {
        mean(x[rank], y, step);
        if (rank != 0) continue;
        double along = 0, sum = 0, squares = 0;
        for (std::size_t i = 0; i < d; ++i) {
          double const error = static_cast<double>(y[i]) - exact[i];
          s.errors[i].add(error);
          along += error * exact[i];
          sum += error;
          squares += error * error;
        }
        s.along.add(along / s.norm);
        s.sum.add(sum / magnitudes);
        s.squares.add(squares);
      }
    });
  } catch (error const& e) {
    s.error = e.what();
  }
  s.norm = std::sqrt(s.norm);
  return s;
}

/// How far a mean may lie from its expectation; see the top of this file.
struct limit {
  double z, rare, rounding;

  limit(double comparisons, double false_alarm, double calls, double range, double allowed)
      : z(std::sqrt(2 * std::log(4 * comparisons / false_alarm))),
        rare(7 * z * z * range / (6 * (calls - 1))),
        rounding(allowed) {}

  double of(tally const& t) const { return z * t.standard_error() + rare + rounding; }
  /// The smallest deviation that is found with probability 0.99.
  double finds(tally const& t) const { return of(t) + quantile_99 * t.standard_error(); }
};

/// Infinite where results never change.
inline double in_standard_errors(double x, tally const& t) {
  return x == 0 ? 0 : (t.constant ? std::numeric_limits<double>::infinity() : x / t.standard_error());
}
inline std::string standard_errors(double z) {
  return std::isinf(z) ? "constant in all calls" : digits(z) + " standard errors";
}

inline bias_report bias_in(any_quantizer const& op, sample const& s, settings const& how) {
  bias_report r;
  std::string const name = "unbiased, " + s.schedule + ", " + plural(s.workers) + ": ";
  if (!s.error.empty()) {
    r.result = outcome::failed;
    r.lines = {name + "FAILED: " + s.error};
    return r;
  }
  double const calls = s.squares.calls, comparisons = static_cast<double>(s.errors.size()) + 2;
  double widest = 0, squares = 0, chance = 0;
  for (tally const& t : s.errors) {
    widest = std::max(widest, t.range());
    squares += t.mean() * t.mean();
    chance += t.variance() / calls;
  }
  double const rounding = 0x1p-20 * s.largest, relative = rounding / s.norm;
  limit const of_each(comparisons, how.false_alarm, calls, widest, rounding);
  limit const of_growth(comparisons, how.false_alarm, calls, s.along.range(), relative);
  limit const of_sum(comparisons, how.false_alarm, calls, s.sum.range(), relative);
  r.calls = how.calls;
  r.comparisons = s.errors.size() + 2;
  r.bias = std::sqrt(std::max(0.0, squares - chance)) / s.norm;
  r.growth = s.along.mean();
  r.finds_growth = of_growth.finds(s.along);
  std::string where;
  auto const compare = [&](limit const& at, tally const& t, auto const& what) {
    double const deviation = std::fabs(t.mean()), most = at.of(t);
    double const part = deviation == 0 ? 0 : deviation / most;
    if (part <= r.share && !where.empty()) return;
    r.share = part;
    r.largest_z = in_standard_errors(deviation, t);
    r.threshold = in_standard_errors(most, t);
    where = what();
  };
  for (std::size_t i = 0; i < s.errors.size(); ++i) {
    tally const& t = s.errors[i];
    compare(of_each, t, [i] { return "value " + std::to_string(i); });
    double const finds = of_each.finds(t);
    if (finds <= r.finds * s.norm) continue;
    r.finds = finds / s.norm;
    r.finds_z = in_standard_errors(finds, t);
  }
  compare(of_growth, s.along, [] { return "the length of the vector"; });
  compare(of_sum, s.sum, [] { return "the sum of the values"; });
  std::string const error = "the error of " + where + " is " + standard_errors(r.largest_z) + ", " +
                            digits(r.share) + " of its limit";
  bool const declared = !op.facts().unbiased;
  if (r.share > 1) {
    r.result = outcome::failed;
    r.lines.push_back(name + "BIASED: " + error + "; the bias is " + percent(r.bias) +
                      " of the norm, and along the vector " + percent(r.growth) +
                      (declared ? "; the operator declares that it is biased" : ""));
  } else {
    r.lines.push_back(name + "passed: of " + std::to_string(r.comparisons) + " comparisons, " + error +
                      (declared ? "; but the operator declares that it is biased: try other vectors" : ""));
  }
  r.lines.push_back("  " + std::to_string(r.calls) + " calls find, with probability 0.99, a bias of " +
                    percent(r.finds) + " of the norm in any one value (" + standard_errors(r.finds_z) +
                    "), or of " + percent(r.finds_growth) +
                    " along the vector; they fail a correct operator at most once in " +
                    digits(1 / how.false_alarm) + " runs");
  return r;
}

inline variance_report variance_in(sample const& s, settings const& how) {
  variance_report r;
  std::string const name = "variance, " + s.schedule + ", " + plural(s.workers) + ": ";
  if (!s.error.empty()) {
    r.result = outcome::failed;
    r.lines = {name + "FAILED: " + s.error};
    return r;
  }
  r.measured = s.squares.mean();
  r.bound = s.planned.theta / s.workers * s.energy;
  r.share = r.measured / r.bound;
  if (std::isnan(s.planned.theta)) {
    r.result = outcome::skipped;
    r.lines = {name + "the plan has no bound; measured is " + digits(r.measured * s.workers / s.energy) +
               " as theta"};
    return r;
  }
  double const rounding =
      static_cast<double>(s.errors.size()) * std::pow(0x1p-20 * s.largest, 2) + 0x1p-20 * r.bound;
  limit const at(0.5, how.false_alarm, s.squares.calls, s.squares.range(), rounding);  // one side only
  r.finds = 1 + at.finds(s.squares) / r.bound;
  bool const above = r.measured - r.bound > at.of(s.squares);
  if (above) r.result = outcome::failed;
  r.lines.push_back(name + (above ? "ABOVE THE BOUND" : "passed") + ": theta is " +
                    digits(r.measured * s.workers / s.energy) + " on these vectors, and at most " +
                    digits(s.planned.theta) + " by the plan" +
                    (r.bound > 0 ? " (" + percent(r.share) + " of it)" : std::string()));
  return r;
}

/// Why the means of an operator's single calls have a bias by design; empty: they have none.
inline std::string never_unbiased(any_quantizer const& op) {
  if (globalq::detail::feedback_of(op.facts().chain) == nullptr) return {};
  return "does not apply: error_feedback adds what one call leaves out to the next, so that only sums over "
         "calls are right; "
         "check the operator inside it";
}

}  // namespace detail

/// @brief Whether the mean of the workers' vectors is the expectation of what an operator returns, in every coordinate.
///
/// The text at the top of check/unbiased.hpp states the test, its false alarms and its power.
/// @param op        quantizer, floats, any_quantizer, or these with stages
/// @param schedule  the schedule of the calls; over allgather each vector is encoded once
/// @pre Kokkos is initialized
/// @returns failed if there is a bias, or if a call throws; skipped for error_feedback
/// @throws configuration_error when operator and schedule do not fit together, or there is nothing to test
/// @complexity calls of n threads: half a second to two with the defaults
template <class Schedule = schedule::allgather>
bias_report unbiased(any_quantizer const& op, settings const& how = {}, Schedule const& schedule = {}) {
  if (std::string why = detail::never_unbiased(op); !why.empty()) {
    bias_report r;
    r.result = outcome::skipped;
    r.lines = {"unbiased: " + why};
    return r;
  }
  return detail::bias_in(op, detail::sampled(op, schedule, how), how);
}

/// @brief Whether E||result - mean||^2 is within the bound of the plan.
///
/// Few vectors reach the bound, which is for the worst of them: a share far below 1 is no fault. One far above 1 means that a policy
/// does not do what it declares. Parameters, errors and complexity as of unbiased().
/// @returns skipped where the plan has no bound
template <class Schedule = schedule::allgather>
variance_report variance(any_quantizer const& op, settings const& how = {}, Schedule const& schedule = {}) {
  return detail::variance_in(detail::sampled(op, schedule, how), how);
}

}  // namespace GLOBALQ_ABI::check
