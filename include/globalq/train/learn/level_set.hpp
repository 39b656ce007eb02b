// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: levels during learning, and the two families of levels from which learning starts.

#include "../../core/error.hpp"
#include "../../levels/table.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::learn {

/// Neighboring levels differ at least by this factor, so that they differ as float32 with a margin.
inline constexpr double closest_ratio = 1 + 0x1p-20;

/// No level above zero is smaller; levels::table accepts none below 2^-94.
inline constexpr double smallest_level = 0x1p-60;

/// @brief Ascending levels, the last one 1: 0, l_1, ..., 1; or, if zero_free, l_1, ..., 1 and their negatives.
struct level_set {
  std::vector<double> values;  ///< the argument of levels::table, or of levels::symmetric if zero_free
  bool zero_free = false;

  /// The number of levels above zero.
  std::uint32_t size() const { return static_cast<std::uint32_t>(values.size() - (zero_free ? 0 : 1)); }
  /// Index of the first level that may move; the last such index is values.size() - 2.
  std::size_t first_free() const { return zero_free ? 0 : 1; }

  /// @throws configuration_error if zero_free
  levels::table table() const {
    if (zero_free)
      throw configuration_error(
          "globalq: learn: these levels have no zero; call symmetric() for levels::symmetric");
    return levels::table(std::span<double const>(values));
  }
  /// @throws configuration_error unless zero_free
  levels::symmetric symmetric() const {
    if (!zero_free)
      throw configuration_error("globalq: learn: these levels have a zero; call table() for levels::table");
    return levels::symmetric(std::span<double const>(values));
  }
};

/// The result of a solver.
struct solution {
  level_set levels;
  double variance = 0;  ///< Psi of the levels for the given distribution; see variance()
  int iterations = 0;   ///< sweeps, or steps
  bool converged = true;
};

namespace detail {

/// Throws if no table has s levels.
inline void check_size(std::uint32_t s, char const* who) {
  if (s < 1 || s > levels::detail::level_table::limit)
    throw configuration_error(std::string("globalq: learn::") + who + ": " + std::to_string(s) +
                              " levels above zero; use 1 to " +
                              std::to_string(levels::detail::level_table::limit));
}

/// Sweeps until a sweep lowers the measure by less than the share `tolerance`, at most `most` times.
/// @param sweep    changes r.levels
/// @param measure  becomes r.variance
template <class Sweep, class Measure>
void descend(solution& r, int most, double tolerance, Measure const& measure, Sweep const& sweep) {
  r.variance = measure();
  r.converged = false;
  while (!r.converged && r.iterations < most) {
    sweep();
    double const now = measure();
    r.converged = !(now < r.variance * (1 - tolerance));
    r.variance = now;
    ++r.iterations;
  }
}

/// Moves levels apart, from the top down, until they differ as float32; does not move other levels.
inline void separate(level_set& l) {
  for (std::size_t i = l.values.size() - 1; i-- > l.first_free();) {
    double const most = l.values[i + 1] / closest_ratio;
    if (!(l.values[i] <= most)) l.values[i] = most;
  }
  double least = smallest_level;
  for (std::size_t i = l.first_free(); i + 1 < l.values.size(); ++i) {
    if (!(l.values[i] >= least)) l.values[i] = least;
    least = l.values[i] * closest_ratio;
  }
}

}  // namespace detail

/// @brief Evenly spaced levels: k/s; without zero (2k - 1)/(2s - 1), so that all gaps of the signed levels are equal.
/// @throws configuration_error unless 1 <= s <= 127
inline level_set uniform_levels(std::uint32_t s, bool zero_free = false) {
  detail::check_size(s, "uniform_levels");
  level_set l;
  l.zero_free = zero_free;
  if (!zero_free) l.values.push_back(0);
  for (std::uint32_t k = 1; k <= s; ++k)
    l.values.push_back(zero_free ? (2.0 * k - 1) / (2.0 * s - 1) : static_cast<double>(k) / s);
  return l;
}

/// @brief The levels p^(s-1), ..., p, 1, with a zero below them unless zero_free.
/// @throws configuration_error unless 1 <= s <= 127, 0 < p < 1 and p^(s-1) >= 2^-60
inline level_set exponential_levels(std::uint32_t s, double p = 0.5, bool zero_free = false) {
  detail::check_size(s, "exponential_levels");
  if (!(p > 0 && p * closest_ratio <= 1 && std::pow(p, s - 1) >= smallest_level * 0.999))
    throw configuration_error(
        "globalq: learn::exponential_levels: " + std::to_string(s) + " powers of " + std::to_string(p) +
        " are not distinct in [2^-60, 1]; use fewer levels, or a p further from 0 and 1");
  level_set l;
  l.zero_free = zero_free;
  l.values.assign(s + (zero_free ? 0U : 1U), 0.0);
  double v = 1;
  for (std::size_t i = l.values.size(); i-- > l.first_free(); v *= p) l.values[i] = v;
  return l;
}

namespace detail {

/// The start of a solver: the levels that the caller gave, or evenly spaced ones.
inline level_set start_of(std::optional<level_set> const& given, std::uint32_t size, bool zero_free,
                          char const* who) {
  check_size(size, who);
  if (!given) return uniform_levels(size, zero_free);
  auto const& v = given->values;
  bool ascending = !v.empty() && v.back() == 1 && (zero_free ? v.front() > 0 : v.front() == 0);
  for (std::size_t i = 1; i < v.size(); ++i) ascending = ascending && v[i] >= v[i - 1];
  if (given->zero_free != zero_free || v.size() != size + (zero_free ? 0U : 1U) || !ascending)
    throw configuration_error(std::string("globalq: learn::") + who + ": start has " +
                              std::to_string(v.size()) + " values; give " + std::to_string(size) +
                              " ascending levels above zero, the last one 1, " +
                              (zero_free ? "and no zero" : "and a zero before them"));
  level_set l = *given;
  separate(l);
  return l;
}

}  // namespace detail

}  // namespace GLOBALQ_ABI::learn
