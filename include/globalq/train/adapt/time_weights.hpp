// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: measures the time a byte of each group of layers takes, and converts costs to seconds.
///
/// Trainers send layers in groups while the backward pass still runs, so a byte of the last group costs more time
/// than one of the first. A group is a set of layers that travel in one call, as in overlapped_mean.

#include "rule.hpp"

#include <cmath>
#include <functional>
#include <utility>

namespace GLOBALQ_ABI::adapt {

/// @brief seconds = base + sum of seconds_per_byte[g] * bytes[g].
struct time_model {
  double base = 0;
  std::vector<double> seconds_per_byte;  ///< T(g) of each group, not negative
  double score = 0;  ///< R^2: the share of the samples' variance that the model explains, robustly weighted

  /// The seconds for given bytes of each group.
  double operator()(std::span<double const> bytes) const {
    double t = base;
    for (std::size_t g = 0; g < seconds_per_byte.size() && g < bytes.size(); ++g)
      t += seconds_per_byte[g] * bytes[g];
    return t;
  }
};

/// @brief Fits T(g) to measured steps by linear regression.
///
/// Measure the time from the first group's start to the last one's end, for several choices of parameters.
/// @code
/// gq::adapt::time_regression times(groups);
/// times.add(bytes_of_each_group, seconds);                // many times
/// auto const by_time = gq::adapt::weighted(table, group_of_layer, times.fit());
/// @endcode
/// Outliers (a step that something else disturbed) count less: Huber's weights, with the spread from the median of the
/// residuals. No coefficient is negative. If the samples cannot distinguish groups, because they always grew together
/// or one never changed, these groups get the coefficient of all bytes together.
/// @determinism  a function of the samples on one machine; each worker measures its own, and agree.hpp averages costs
/// @source       Markov 2024 (thesis), section 4.5, "Optimizing for Time"; Huber 1964
class time_regression {
 public:
  /// @throws configuration_error if there are no groups
  explicit time_regression(std::size_t groups) : groups_(groups) {
    if (groups == 0) throw configuration_error("globalq: time_regression: no groups; give at least one");
  }

  /// @param bytes    of each group in a step
  /// @param seconds  duration of the exchange
  /// @throws         configuration_error if the number of groups differs, or a number is negative or not finite
  void add(std::span<double const> bytes, double seconds) {
    bool good = is_finite(seconds) && seconds >= 0 && bytes.size() == groups_;
    for (double b : bytes) good = good && is_finite(b) && b >= 0;
    if (!good)
      throw configuration_error("globalq: time_regression: a sample of " + std::to_string(bytes.size()) +
                                " groups in " + detail::text_of(seconds) + " s for " +
                                std::to_string(groups_) +
                                " groups; give finite, non-negative bytes and seconds");
    seconds_.push_back(seconds);
    try {
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    } catch (...) {
      seconds_.pop_back();
      throw;
    }
  }

  std::size_t samples() const { return seconds_.size(); }

  /// @throws      configuration_error if all samples have the same bytes: vary the parameters
  /// @complexity  O(samples * groups^2)
  time_model fit() const {
    std::size_t const n = samples(), m = groups_;
    // bytes are scaled by a group's largest, so that numbers have similar magnitudes
    std::vector<double> unit(m, 0.0), total(n, 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t b = 0; b < m; ++b) {
        unit[b] = std::max(unit[b], bytes_[i * m + b]);
        total[i] += bytes_[i * m + b];
      }
    auto const [least, most] = std::minmax_element(total.begin(), total.end());
    if (n < 2 || *least == *most)
      throw configuration_error("globalq: time_regression: " + std::to_string(n) +
                                " samples, all of the same bytes, do not determine the time of a byte; "
                                "measure steps with other parameters");
    std::vector<double> weights(n, 1.0), x(n * m), slope(m), prior(m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t b = 0; b < m; ++b) x[i * m + b] = unit[b] > 0 ? bytes_[i * m + b] / unit[b] : 0;
    double base = 0;
    for (int pass = 0; pass < 30; ++pass) {
      double const common = common_slope(weights, total);
      for (std::size_t b = 0; b < m; ++b) prior[b] = common * unit[b];
      if (pass == 0) slope = prior;
      base = solve(weights, x, prior, slope);
      reweigh(x, slope, base, weights);
    }
    time_model found;
    found.base = base;
    double sum = 0, mean = 0, rest = 0, spread = 0;
    for (std::size_t i = 0; i < n; ++i) sum += weights[i], mean += weights[i] * seconds_[i];
    mean /= sum;
    for (std::size_t i = 0; i < n; ++i) {
      double const r = residual(x, slope, base, i), d = seconds_[i] - mean;
      rest += weights[i] * r * r;
      spread += weights[i] * d * d;
    }
    found.score = spread > 0 ? 1 - rest / spread : 1;
    for (std::size_t b = 0; b < m; ++b)
      found.seconds_per_byte.push_back(unit[b] > 0 ? slope[b] / unit[b] : common_slope(weights, total));
    return found;
  }

 private:
  double residual(std::vector<double> const& x, std::vector<double> const& slope, double base,
                  std::size_t i) const {
    double r = seconds_[i] - base;
    for (std::size_t b = 0; b < groups_; ++b) r -= slope[b] * x[i * groups_ + b];
    return r;
  }

  /// The slope of all bytes together; not negative.
  double common_slope(std::vector<double> const& w, std::vector<double> const& total) const {
    double sum = 0, mx = 0, my = 0, xx = 0, xy = 0;
    for (std::size_t i = 0; i < total.size(); ++i)
      sum += w[i], mx += w[i] * total[i], my += w[i] * seconds_[i];
    mx /= sum, my /= sum;
    for (std::size_t i = 0; i < total.size(); ++i) {
      xx += w[i] * (total[i] - mx) * (total[i] - mx);
      xy += w[i] * (total[i] - mx) * (seconds_[i] - my);
    }
    return xx > 0 ? std::max(0.0, xy / xx) : 0;
  }

  /// Weighted least squares with slopes >= 0, pulled slightly toward the prior, by coordinate descent; returns the
  /// base.
  double solve(std::vector<double> const& w, std::vector<double> const& x, std::vector<double> const& prior,
               std::vector<double>& slope) const {
    std::size_t const n = samples(), m = groups_;
    double sum = 0, my = 0, largest = 0;
    std::vector<double> mx(m, 0.0), gram(m * m, 0.0), right(m, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      sum += w[i], my += w[i] * seconds_[i];
      for (std::size_t b = 0; b < m; ++b) mx[b] += w[i] * x[i * m + b];
    }
    my /= sum;
    for (double& v : mx) v /= sum;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t a = 0; a < m; ++a) {
        double const xa = w[i] * (x[i * m + a] - mx[a]);
        right[a] += xa * (seconds_[i] - my);
        for (std::size_t b = 0; b < m; ++b) gram[a * m + b] += xa * (x[i * m + b] - mx[b]);
      }
    for (std::size_t b = 0; b < m; ++b) largest = std::max(largest, gram[b * m + b]);
    double const pull = 1e-9 * largest;
    for (std::size_t b = 0; b < m; ++b) gram[b * m + b] += pull, right[b] += pull * prior[b];
    for (int sweep = 0; sweep < 2000; ++sweep) {
      double moved = 0;
      for (std::size_t a = 0; a < m; ++a) {
        double rest = right[a];
        for (std::size_t b = 0; b < m; ++b) rest -= gram[a * m + b] * slope[b];
        double const next = std::max(0.0, slope[a] + rest / gram[a * m + a]);
        moved = std::max(moved, std::fabs(next - slope[a]));
        slope[a] = next;
      }
      double size = 0;
      for (double s : slope) size = std::max(size, s);
      if (moved <= 1e-12 * size) break;
    }
    double base = my;
    for (std::size_t b = 0; b < m; ++b) base -= slope[b] * mx[b];
    return base;
  }

  /// Huber's weights: 1 within 1.345 deviations of the median of the residuals, falling beyond.
  void reweigh(std::vector<double> const& x, std::vector<double> const& slope, double base,
               std::vector<double>& weights) const {
    std::vector<double> size(samples());
    for (std::size_t i = 0; i < samples(); ++i) size[i] = std::fabs(residual(x, slope, base, i));
    std::vector<double> sorted = size;
    auto const middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    double const limit = 1.345 * 1.4826 * *middle;
    for (std::size_t i = 0; i < samples(); ++i)
      weights[i] = size[i] <= limit || limit == 0 ? 1.0 : limit / size[i];
  }

  std::size_t groups_;
  std::vector<double> bytes_, seconds_;
};

/// @brief The same table with costs in seconds: each layer's bytes times T of its group.
/// @param group_of_layer  one for each layer
/// @throws                 configuration_error if the model has no such group
inline choice_table weighted(choice_table const& table, std::span<std::size_t const> group_of_layer,
                             time_model const& times) {
  if (group_of_layer.size() != table.size())
    throw configuration_error("globalq: weighted: group_of_layer has " +
                              std::to_string(group_of_layer.size()) + " entries for " +
                              std::to_string(table.size()) + " layers; give one group for each layer");
  choice_table result;
  for (std::size_t l = 0; l < table.size(); ++l) {
    if (group_of_layer[l] >= times.seconds_per_byte.size())
      throw configuration_error("globalq: weighted: " + table.name(l) + " is in group " +
                                std::to_string(group_of_layer[l]) + ", but the time model has " +
                                std::to_string(times.seconds_per_byte.size()) + " groups, counted from 0");
    std::vector<candidate> of(table[l].begin(), table[l].end());
    for (candidate& c : of) c.cost *= times.seconds_per_byte[group_of_layer[l]];
    result.add(of, table.name(l));
  }
  return result;
}

/// @brief A rule that minimizes seconds instead of bytes, for chooser, adaptive_mean or baseline::adaptive.
///
/// Worker 0, which runs rules, calls times() for each choice; the other workers need no times. The selection's cost is
/// in seconds, without time_model::base.
/// @code
/// gq::adapt::time_regression times(groups);               // times.add(..) while training
/// gq::adapt::rule const how = gq::adapt::by_time(gq::adapt::rule_of(gq::adapt::lgreco{}), group_of_layer,
///                                                [&] { return times.fit(); });
/// @endcode
/// @param within           inner rule
/// @param group_of_layer  one for each layer
/// @returns                a rule that throws the errors of @p within, weighted() and @p times
/// @source                 Markov 2024 (thesis), section 4.5, "Optimizing for Time"
inline rule by_time(rule within, std::vector<std::size_t> group_of_layer, std::function<time_model()> times) {
  return [within = std::move(within), groups = std::move(group_of_layer), times = std::move(times)](
             choice_table const& table, std::span<layer_point const> points, double budget,
             std::span<std::uint32_t const> reference) {
    return within(weighted(table, groups, times()), points, budget, reference);
  };
}

}  // namespace GLOBALQ_ABI::adapt
