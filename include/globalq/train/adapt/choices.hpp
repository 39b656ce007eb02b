// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the candidates of each layer, with their costs and errors.

#include "../../core/error.hpp"
#include "../../core/float_environment.hpp"
#include "detail/exact_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// One way to send a layer.
struct candidate {
  double cost = 0;   ///< to be minimized: bytes, or seconds (time_weights); the same unit in the whole table
  double error = 0;  ///< to be bounded: the squared l2 error, or any other measure that adds up over layers
};

namespace detail {

/// "0.00123", for messages.
inline std::string text_of(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

inline void expect_factor(double factor) {
  if (!(factor >= 1 && factor <= 0x1p20))
    throw configuration_error(
        "globalq: around: the factor " + text_of(factor) +
        " is not between 1 and 2^20; 2 is L-GreCo's for bits and ranks, 10 for densities");
}

}  // namespace detail

/// @brief The candidates of each layer, from which a solver chooses one; layers may differ in their number.
///
/// A layer that must not be compressed has one candidate, of error 0. Candidates keep the order in which they were
/// given; the rules of cgx.hpp expect the most compressed one first.
class choice_table {
 public:
  /// The largest number of candidates of a layer.
  static constexpr std::size_t most_candidates = 256;

  /// @brief Adds a layer.
  /// @param candidates  at least one, at most 256
  /// @param name        for error texts; empty: "layer 3"
  /// @returns           the number of the layer
  /// @throws            configuration_error unless all costs and errors are numbers from 0 to 2^900
  std::size_t add(std::span<candidate const> candidates, std::string name = {}) {
    if (name.empty()) name = "layer " + std::to_string(size());
    if (candidates.empty() || candidates.size() > most_candidates)
      throw configuration_error(
          "globalq: choice_table: " + name + " has " + std::to_string(candidates.size()) +
          " candidates; give 1 to 256, for a layer that must not be compressed one of error 0");
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      expect(candidates[c].cost, "cost", c, name);
      expect(candidates[c].error, "error", c, name);
    }
    std::size_t const layers = size(), before = candidates_.size();
    try {
      candidates_.insert(candidates_.end(), candidates.begin(), candidates.end());
      first_.push_back(candidates_.size());
      names_.push_back(std::move(name));
    } catch (...) {
      candidates_.resize(before);
      first_.resize(layers + 1);
      throw;
    }
    return layers;
  }
  std::size_t add(std::initializer_list<candidate> candidates, std::string name = {}) {
    return add(std::span<candidate const>(candidates.begin(), candidates.size()), std::move(name));
  }

  /// The number of layers.
  std::size_t size() const { return names_.size(); }
  bool empty() const { return names_.empty(); }
  std::span<candidate const> operator[](std::size_t layer) const {
    return {candidates_.data() + first_[layer], first_[layer + 1] - first_[layer]};
  }
  std::string const& name(std::size_t layer) const { return names_[layer]; }

  /// The candidates of all layers, layer by layer.
  std::span<candidate const> all() const { return candidates_; }

  /// @brief The cost of a choice; costs of layers are added in order.
  /// @param choices  the number of the candidate of each layer
  /// @throws         configuration_error for a choice that does not exist, as error() and within() do
  double cost(std::span<std::uint32_t const> choices) const {
    expect(choices);
    double sum = 0;
    for (std::size_t l = 0; l < size(); ++l) sum += (*this)[l][choices[l]].cost;
    return sum;
  }

  /// The error of a choice: the exact sum, rounded up to a double.
  double error(std::span<std::uint32_t const> choices) const { return sum_of_errors(choices).rounded_up(); }

  /// Whether the error of a choice is at most @p budget, decided exactly.
  bool within(std::span<std::uint32_t const> choices, double budget) const {
    return is_finite(budget) && budget >= 0 && sum_of_errors(choices) <= detail::exact_sum(budget);
  }

 private:
  static void expect(double x, char const* what, std::size_t c, std::string const& name) {
    if (is_finite(x) && x >= 0 && x <= 0x1p900) return;
    throw configuration_error("globalq: choice_table: candidate " + std::to_string(c) + " of " + name +
                              " has the " + what + " " + detail::text_of(x) +
                              "; give costs and errors from 0 to 2^900, and leave out other candidates");
  }
  void expect(std::span<std::uint32_t const> choices) const {
    if (choices.size() != size())
      throw configuration_error("globalq: choice_table: " + std::to_string(choices.size()) + " choices for " +
                                std::to_string(size()) + " layers; give one for each layer");
    for (std::size_t l = 0; l < size(); ++l)
      if (choices[l] >= (*this)[l].size())
        throw configuration_error("globalq: choice_table: choice " + std::to_string(choices[l]) + " for " +
                                  names_[l] + ", which has " + std::to_string((*this)[l].size()) +
                                  " candidates; choices count from 0");
  }
  detail::exact_sum sum_of_errors(std::span<std::uint32_t const> choices) const {
    expect(choices);
    detail::exact_sum sum;
    for (std::size_t l = 0; l < size(); ++l) sum.add((*this)[l][choices[l]].error);
    return sum;
  }

  std::vector<candidate> candidates_;
  std::vector<std::size_t> first_{0};
  std::vector<std::string> names_;
};

/// @brief The result of a solver.
struct selection {
  std::vector<std::uint32_t> choices;  ///< the number of the candidate of each layer
  double cost = 0;                     ///< of the choices
  double error = 0;                    ///< of the choices, rounded up
  double lower_bound = 0;  ///< no choice within the budget costs less; 0 if the solver has no bound
  bool optimal = false;    ///< proved, up to 10^-12 of the cost of the choice of least error
};

/// @brief The choice of the same candidate for every layer: a uniform reference.
///
/// Layers with one candidate get that candidate.
/// @throws configuration_error if a layer has several candidates, but not this one
inline std::vector<std::uint32_t> uniform_choice(choice_table const& table, std::uint32_t candidate_number) {
  std::vector<std::uint32_t> choices(table.size(), 0);
  for (std::size_t l = 0; l < table.size(); ++l) {
    if (table[l].size() == 1) continue;
    if (candidate_number >= table[l].size())
      throw configuration_error("globalq: uniform_choice: " + table.name(l) + " has " +
                                std::to_string(table[l].size()) + " candidates, index " +
                                std::to_string(candidate_number) +
                                " does not exist; write down a choice for each layer instead");
    choices[l] = candidate_number;
  }
  return choices;
}

/// @brief The error budget of a reference choice: alpha times its error.
///
/// It is L-GreCo's E_max (alpha = 1), and CGX's alpha * E_4 if the reference is 4 bits everywhere. With alpha >= 1 the
/// reference itself is within the budget. If errors are squared l2 norms, as in the families here, alpha multiplies the
/// square: alpha = 4 allows twice the norm.
/// @throws configuration_error unless alpha lies between 0 and 2^60
/// @source Markov 2024 (thesis), section 3.6 (whose error is the norm itself) and Algorithm 4.1, line 2
inline double budget_of(choice_table const& table, std::span<std::uint32_t const> reference,
                        double alpha = 1) {
  if (!is_finite(alpha) || alpha < 0 || alpha > 0x1p60)
    throw configuration_error("globalq: budget_of: alpha " + detail::text_of(alpha) +
                              " is not between 0 and 2^60; 1 keeps the error of the reference");
  return alpha * table.error(reference);
}

/// @brief Integer parameters around a reference: all from reference / factor, rounded up, to factor * reference.
///
/// With the factor 2 the range that L-GreCo searches by default, for bits (4: 2 to 8) and ranks.
/// @throws configuration_error unless the factor is at least 1 and at most 2^20
/// @source Markov 2024 (thesis), section 4.6
inline std::vector<std::uint32_t> around(std::uint32_t reference, double factor = 2) {
  detail::expect_factor(factor);
  std::vector<std::uint32_t> parameters;
  float_environment const exact;
  double const least = std::ceil(reference / factor),
               most = std::min(factor * reference, static_cast<double>(~std::uint32_t{0}));
  for (double p = least; p <= most; ++p) parameters.push_back(static_cast<std::uint32_t>(p));
  return parameters;
}

/// @brief Real parameters around a reference, such as densities: @p count of them from reference / factor to factor *
///        reference, at equal ratios, the reference included.
///
/// For densities the thesis has the factor 10; leave out those above 1.
/// @throws configuration_error unless count is odd and at least 3, and the factor at least 1 and at most 2^20
inline std::vector<double> around(double reference, std::uint32_t count, double factor = 2) {
  if (count < 3 || count % 2 == 0)
    throw configuration_error("globalq: around: " + std::to_string(count) +
                              " parameters; an odd number of at least 3 puts the reference in the middle");
  detail::expect_factor(factor);
  float_environment const exact;
  std::vector<double> parameters;
  int const half = static_cast<int>(count / 2);
  double const ratio = std::log2(factor);
  for (int k = -half; k <= half; ++k)
    parameters.push_back(k == 0 ? reference : reference * std::exp2(ratio * static_cast<double>(k) / half));
  return parameters;
}

namespace detail {

/// Computes cost and error of the choices.
inline selection selection_of(choice_table const& table, std::vector<std::uint32_t> choices,
                              double lower_bound, bool optimal) {
  selection s;
  s.cost = table.cost(choices);
  s.error = table.error(choices);
  s.choices = std::move(choices);
  s.lower_bound = std::min(lower_bound, s.cost);
  s.optimal = optimal;
  return s;
}

/// The number of candidates that every layer with a choice has: the number of uniform choices.
inline std::uint32_t common_candidates(choice_table const& table) {
  std::size_t common = choice_table::most_candidates + 1;
  for (std::size_t l = 0; l < table.size(); ++l)
    if (table[l].size() > 1) common = std::min(common, table[l].size());
  return common > choice_table::most_candidates ? 0 : static_cast<std::uint32_t>(common);
}

/// The choice of the smallest error, and the cheapest of these.
inline std::vector<std::uint32_t> most_accurate(choice_table const& table) {
  std::vector<std::uint32_t> choices(table.size(), 0);
  for (std::size_t l = 0; l < table.size(); ++l)
    for (std::uint32_t c = 1; c < table[l].size(); ++c) {
      candidate const &a = table[l][c], &b = table[l][choices[l]];
      if (a.error < b.error || (a.error == b.error && a.cost < b.cost)) choices[l] = c;
    }
  return choices;
}

/// Throws if a budget is negative or not finite, or if no choice meets it.
inline void expect_feasible(choice_table const& table, double budget, std::string_view solver) {
  std::string const who = "globalq: " + std::string(solver) + ": ";
  if (!is_finite(budget) || budget < 0)
    throw configuration_error(who + "the budget " + text_of(budget) +
                              " is negative or not finite; compute it with budget_of() from a reference");
  std::vector<std::uint32_t> const least = most_accurate(table);
  if (table.within(least, budget)) return;
  std::size_t worst = 0;
  for (std::size_t l = 0; l < table.size(); ++l)
    if (table[l][least[l]].error > table[worst][least[worst]].error) worst = l;
  throw configuration_error(
      who + "no choice meets the error budget " + text_of(budget) + ", the smallest error is " +
      text_of(table.error(least)) + ", of which " + text_of(table[worst][least[worst]].error) +
      " comes from " + table.name(worst) +
      "; raise alpha, or add candidates of smaller error, for example with more bits, values or ranks");
}

}  // namespace detail

}  // namespace GLOBALQ_ABI::adapt
