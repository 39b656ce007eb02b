// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: the concept Distribution: the distribution F on [0, 1] of magnitudes r = |x| / norm, as solvers use
///        it.

#include "../../core/arithmetic.hpp"

#include <concepts>

namespace GLOBALQ_ABI::learn {

/// Moments of a distribution over an interval.
struct moments {
  double mass = 0;    ///< integral of dF
  double first = 0;   ///< integral of r dF
  double second = 0;  ///< integral of r^2 dF

  friend constexpr moments operator-(moments const& a, moments const& b) {
    return {a.mass - b.mass, a.first - b.first, a.second - b.second};
  }
};

/// @brief A distribution of magnitudes on [0, 1].
///
/// - `below(t)`, t in [0, 1]: the moments of [0, t]. `below(1).mass` is 1 up to rounding.
/// - `quantile(q)`, q in [0, 1]: a t with F(t-) <= q <= F(t), up to rounding.
template <class F>
concept Distribution = requires(F const& f, double t) {
  { f.below(t) } -> std::same_as<moments>;
  { f.quantile(t) } -> std::same_as<double>;
};

}  // namespace GLOBALQ_ABI::learn
