// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: rules, which choose each layer's candidate; common to the methods of all papers.

#include "choices.hpp"

#include <functional>
#include <span>
#include <type_traits>

namespace GLOBALQ_ABI::adapt {

/// The facts about a layer that rules use besides its candidates.
struct layer_point {
  double size = 0;  ///< values
  double norm = 0;  ///< l2 norm of its accumulated gradient
};

/// @brief A rule makes a choice: rule(table, points, budget, reference) -> selection.
///
/// The reference is a choice that meets the budget if alpha is 1 or more.
using rule = std::function<selection(choice_table const&, std::span<layer_point const>, double,
                                     std::span<std::uint32_t const>)>;

/// @brief The rule of lgreco, cgx_kmeans, cgx_linear or cgx_bayes with its settings.
template <class Solver>
rule rule_of(Solver solver) {
  return [solver](choice_table const& table, std::span<layer_point const> points, double budget,
                  std::span<std::uint32_t const> reference) {
    if constexpr (std::is_invocable_v<Solver const&, choice_table const&, std::span<layer_point const>,
                                      double>)
      return solver(table, points, budget);
    else
      return solver(table, budget, reference);
  };
}

}  // namespace GLOBALQ_ABI::adapt
