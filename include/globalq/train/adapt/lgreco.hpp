// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: L-GreCo: the choice of least cost whose total error is at most that of a reference.

#include "choices.hpp"
#include "detail/frontier.hpp"
#include "detail/grid.hpp"

namespace GLOBALQ_ABI::adapt {

/// @brief Chooses a candidate for each layer: least total cost, with a total error of at most the budget.
///
/// @code
/// auto const four_bits = gq::adapt::uniform_choice(table, 2);
/// gq::adapt::selection const s = gq::adapt::lgreco{}(table, gq::adapt::budget_of(table, four_bits), four_bits);
/// @endcode
/// - `search` needs no grid: it searches the sums that no other sum beats, pruned by a bound. If these are more than
///   most_states, it keeps those of the best bounds, and tries the grid too. selection::optimal then states whether
///   the optimum was proved, and no choice costs less than selection::lower_bound.
/// - `grid` is the published algorithm: errors in steps of budget / steps, rounded up. It is as good as the optimum for
///   the budget minus one step for each layer, which is much if there are many layers: docs/layers.md has numbers.
///
/// The result never exceeds the budget: its errors are added up exactly. It never costs more than a reference or a
/// uniform choice within the budget, nor than the choice of least error; so rounding up cannot make a problem that has
/// a solution infeasible. Proofs hold for the exact errors: the bound uses errors rounded down by at most 2^-60 of the
/// budget.
/// @determinism  the same choice for the same table on one machine; workers agree by agree.hpp
/// @source       Markov 2024 (thesis), Algorithm 4.1; the bound is Lagrange's, as for multiple-choice knapsacks
///               (Pisinger 1995)
struct lgreco {
  enum class method { search, grid };

  method how = method::search;
  std::uint32_t steps = 10000;  ///< D, of the grid; 1 to 2^24
  double tolerance = 0;         ///< `search` ignores choices that are cheaper by less than this share
  std::uint64_t most_states = 1U << 16;  ///< sums that `search` keeps in a pass over the layers; 16 to 2^30

  /// @param table      layers with their candidates
  /// @param budget     the largest total error that is allowed, such as budget_of(table, reference)
  /// @param reference  a choice to improve on; may be empty
  /// @throws           configuration_error if no choice meets the budget, or a setting is out of range
  /// @complexity       grid: O(layers * candidates * steps); search: O(most_states * candidates) at most, in practice
  ///                   often less than a millisecond; then the grid if the optimum was not proved
  selection operator()(choice_table const& table, double budget,
                       std::span<std::uint32_t const> reference = {}) const {
    if (steps < 1 || steps > (1U << 24) || most_states < 16 || most_states > (std::uint64_t{1} << 30) ||
        !(tolerance >= 0 && tolerance < 1))
      throw configuration_error("globalq: lgreco: " + std::to_string(steps) + " steps and at most " +
                                std::to_string(most_states) + " states with tolerance " +
                                detail::text_of(tolerance) +
                                "; give 1 to 2^24, 16 to 2^30, and a share below 1");
    detail::expect_feasible(table, budget, "lgreco");
    std::vector<std::uint32_t> best = detail::most_accurate(table);
    double cost = table.cost(best);
    auto const offer = [&](std::span<std::uint32_t const> choices) {
      if (choices.empty() || !table.within(choices, budget)) return;
      if (double const theirs = table.cost(choices); theirs < cost) {
        cost = theirs;
        best.assign(choices.begin(), choices.end());
      }
    };
    if (!reference.empty()) offer(reference);
    for (std::uint32_t c = 0; c < detail::common_candidates(table); ++c) offer(uniform_choice(table, c));
    // for the grid, the search computes only the bound
    bool const looks = how == method::search;
    detail::frontier search(table, budget, cost, tolerance, detail::unit_rounding::down);
    detail::frontier_result const found = search.solve(looks ? most_states : 0);
    if (looks) offer(found.choices);
    auto const proved = [&] { return looks && found.complete && search.worth(cost) <= found.lower_bound; };
    if (looks && !found.choices.empty() && !table.within(found.choices, budget)) {
      // it exceeds the budget by less than the rounding: search again with errors rounded up
      detail::frontier safe(table, budget, cost, tolerance, detail::unit_rounding::up);
      offer(safe.solve(most_states).choices);
    }
    if (!proved()) offer(detail::cheapest_on_grid(table, budget, steps));
    return detail::selection_of(table, std::move(best), found.lower_bound, proved());
  }
};

}  // namespace GLOBALQ_ABI::adapt
