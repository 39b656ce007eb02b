// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the dynamic program of L-GreCo over a grid of errors.

#include "../choices.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// @brief Errors in steps of budget / steps, rounded up: if they add up to at most `steps`, the exact sum is within the
///        budget.
class error_grid {
 public:
  /// @pre budget is finite and not negative; 1 <= steps < 2^31
  error_grid(double budget, std::uint32_t steps) : budget_(budget), steps_(steps) {
    if (budget == 0) return;
    exponent_ = exponent_of(budget);
    double const whole = std::ldexp(budget, -exponent_);  // in [1, 2)
    step_ = whole / steps;
    while (std::fma(step_, static_cast<double>(steps), -whole) > 0) step_ = std::nextafter(step_, 0.0);
  }

  /// The smallest k with k steps >= error; steps + 1 for an error above the budget.
  std::uint32_t operator()(double error) const {
    if (error == 0) return 0;
    if (!(error <= budget_)) return steps_ + 1;
    double const scaled = std::ldexp(error, -exponent_);
    double k = std::max(1.0, std::ceil(scaled / step_));
    if (k > 1 && std::fma(k - 1, step_, -scaled) >= 0) k -= 1;
    if (std::fma(k, step_, -scaled) < 0) k += 1;
    return k > steps_ ? steps_ + 1 : static_cast<std::uint32_t>(k);
  }

 private:
  double budget_;
  std::uint32_t steps_;
  int exponent_ = 0;
  double step_ = 0;
};

/// best = min(best, before + cost); which = number where that sum is the smaller one.
GLOBALQ_LOOP void relax(double const* before, double cost, double number, double* best, double* which,
                        std::uint32_t count) {
  GLOBALQ_INDEPENDENT
  for (std::uint32_t e = 0; e < count; ++e) {
    double const sum = before[e] + cost;
    which[e] = sum < best[e] ? number : which[e];
    best[e] = sum < best[e] ? sum : best[e];
  }
}

/// Converts numbers of candidates to bytes, in which each row is kept.
GLOBALQ_LOOP void narrow(double const* which, std::uint8_t* kept, std::uint32_t count) {
  GLOBALQ_INDEPENDENT
  for (std::uint32_t e = 0; e < count; ++e) kept[e] = static_cast<std::uint8_t>(static_cast<int>(which[e]));
}

/// @brief The cheapest choice whose rounded errors add up to at most `steps`; empty if there is none.
/// @complexity  O(layers * candidates * steps) time, layers * steps bytes
inline std::vector<std::uint32_t> cheapest_on_grid(choice_table const& table, double budget,
                                                   std::uint32_t steps) {
  error_grid const grid(budget, steps);
  std::uint32_t const row = steps + 1;
  double const never = std::numeric_limits<double>::max();  // -ffast-math may assume away infinity
  std::vector<double> before(row, 0.0), best(row), which(row);
  std::vector<std::uint8_t> kept(table.size() * std::size_t{row});
  std::vector<std::uint32_t> taken;  // the errors of all candidates, in steps
  for (candidate const& c : table.all()) taken.push_back(grid(c.error));

  std::size_t first = 0;
  for (std::size_t l = 0; l < table.size(); ++l) {
    std::span<candidate const> const of = table[l];
    // in pieces that stay in the first-level cache, whatever the number of candidates
    constexpr std::uint32_t piece = 512;
    for (std::uint32_t begin = 0; begin < row; begin += piece) {
      std::uint32_t const end = std::min(begin + piece, row);
      std::fill(best.begin() + begin, best.begin() + end, never);
      std::fill(which.begin() + begin, which.begin() + end, 0.0);
      for (std::size_t c = 0; c < of.size(); ++c) {
        std::uint32_t const t = taken[first + c], from = std::max(begin, t);
        if (from < end)
          relax(before.data() + (from - t), of[c].cost, static_cast<double>(c), best.data() + from,
                which.data() + from, end - from);
      }
    }
    narrow(which.data(), kept.data() + l * row, row);
    std::swap(before, best);
    first += of.size();
  }
  if (!(before[steps] < never)) return {};

  // of equal costs take the smallest error; rows do not rise
  std::uint32_t e = static_cast<std::uint32_t>(
      std::partition_point(before.begin(), before.end(), [&](double cost) { return cost > before[steps]; }) -
      before.begin());
  std::vector<std::uint32_t> choices(table.size());
  for (std::size_t l = table.size(); l-- > 0;) {
    first -= table[l].size();
    choices[l] = kept[l * row + e];
    e -= taken[first + choices[l]];
  }
  return choices;
}

}  // namespace GLOBALQ_ABI::adapt::detail
