// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: levels for rounding to nearest (weights), which minimize the squared error; rounding is biased.

#include "level_set.hpp"
#include "piecewise_uniform.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace GLOBALQ_ABI::learn {

/// @brief The expected squared error of rounding r ~ F to the nearest level.
/// @complexity one evaluation of F for each level
template <Distribution F>
double nearest_error(F const& f, level_set const& l) {
  moments before{};
  double sum = 0;
  for (std::size_t i = 0; i < l.values.size(); ++i) {
    double const b = l.values[i];
    moments const up_to = i + 1 < l.values.size() ? f.below(0.5 * (b + l.values[i + 1])) : f.below(1);
    moments const m = up_to - before;
    before = up_to;
    double const part = m.second - 2 * b * m.first + b * b * m.mass;
    sum += part > 0 ? part : 0;
  }
  return sum;
}

/// @brief QSDP's learning of levels for weights: q <- q - rate (q - v) for the level q next to each value v.
///
/// A zero level and the largest level, 1, stay, so that the result is a levels::table or levels::symmetric for
/// rounding::nearest.
/// @source Markov 2024 (thesis), algorithm 5.1 and appendix C.3 (rate 0.01, batches of 1,024)
struct weight_levels {
  std::uint32_t size = 15;
  bool zero_free = false;
  std::optional<level_set> start = std::nullopt;  ///< if empty: evenly spaced
  double rate = 0.01;
  std::size_t batch = 1024;  ///< values that are assigned to levels at once; 1: exactly algorithm 5.1

  /// @param values  magnitudes divided by the norm of their bucket, in [0, 1], in the order of learning
  /// @throws configuration_error if no table has that number of levels, if rate is outside (0, 1], or batch is 0
  /// @complexity O(values log size)
  level_set operator()(std::span<float const> values) const {
    if (!(rate > 0 && rate <= 1) || batch == 0)
      throw configuration_error("globalq: learn::weight_levels: rate " + std::to_string(rate) +
                                ", batches of " + std::to_string(batch) +
                                "; use a rate in (0, 1] and batches of 1 or more");
    level_set l = detail::start_of(start, size, zero_free, "weight_levels");
    std::vector<double>& q = l.values;
    std::vector<double> next = q, middle(q.size() - 1);
    for (std::size_t first = 0; first < values.size(); first += batch) {
      for (std::size_t i = 0; i < middle.size(); ++i) middle[i] = 0.5 * (q[i] + q[i + 1]);
      next = q;
      for (float const v : values.subspan(first, std::min(batch, values.size() - first))) {
        std::size_t const i = static_cast<std::size_t>(
            std::upper_bound(middle.begin(), middle.end(), static_cast<double>(v)) - middle.begin());
        if (i >= l.first_free() && i + 1 < q.size()) next[i] -= rate * (next[i] - static_cast<double>(v));
      }
      q.swap(next);  // each level stays in its cell, so levels stay in order
      detail::separate(l);
    }
    return l;
  }
};

/// @brief Lloyd's iteration: each level becomes the mean of the values rounded to it. Never raises the error.
///
/// weight_levels approaches its result as the rate falls.
/// @complexity O(size log bins) for each step
/// @source Lloyd 1982
struct lloyd {
  std::uint32_t size = 15;
  bool zero_free = false;
  std::optional<level_set> start = std::nullopt;  ///< if empty: evenly spaced
  int max_steps = 1000;
  double tolerance = 1e-7;  ///< stops when a step lowers the error by less than this share of it

  /// @returns the levels, and the error (not the variance) in solution::variance
  template <Distribution F>
  solution operator()(F const& f) const {
    solution r;
    r.levels = detail::start_of(start, size, zero_free, "lloyd");
    auto& l = r.levels.values;
    std::vector<double> next = l;
    detail::descend(
        r, max_steps, tolerance, [&] { return nearest_error(f, r.levels); },
        [&] {
          for (std::size_t i = r.levels.first_free(); i + 1 < l.size(); ++i) {
            moments const m =
                f.below(0.5 * (l[i] + l[i + 1])) - (i > 0 ? f.below(0.5 * (l[i - 1] + l[i])) : moments{});
            if (m.mass > 0) next[i] = m.first / m.mass;
          }
          l = next;
          detail::separate(r.levels);
        });
    return r;
  }
  solution operator()(bins const& b) const { return (*this)(piecewise_uniform(b)); }
};

}  // namespace GLOBALQ_ABI::learn
