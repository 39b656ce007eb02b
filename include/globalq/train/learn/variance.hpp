// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: the variance of stochastic rounding to given levels, its derivatives, and how often each level is
///        sent.

#include "distribution.hpp"
#include "level_set.hpp"

namespace GLOBALQ_ABI::learn {

namespace detail {

/// f(a, c, moments of (a, c]) for each pair of neighboring levels; without zero the first pair is -l_1, l_1.
template <Distribution F, class G>
void for_each_gap(F const& f, level_set const& l, G&& g) {
  moments before{};
  for (std::size_t i = l.first_free(); i < l.values.size(); ++i) {
    double const c = l.values[i];
    moments const up_to = f.below(c);
    g(i > 0 ? l.values[i - 1] : -c, c, up_to - before);
    before = up_to;
  }
}

}  // namespace detail

/// @brief Psi(l): the expected variance of rounding r ~ F to one of its neighboring levels without bias.
///
/// Between levels a and c the variance is (c - r)(r - a). That is the chord of r^2 over [a, c] minus r^2, so only the
/// moments of each gap are needed. Multiplied by the squared norm of a vector and its length, it is the variance of an
/// encoding.
/// @complexity  one evaluation of F for each level
/// @source      Faghri et al. 2020, equation (3); without zero Proposition 4, which prints twice this value
template <Distribution F>
double variance(F const& f, level_set const& l) {
  double sum = 0;
  detail::for_each_gap(f, l, [&](double a, double c, moments const& m) {
    double const part = (a + c) * m.first - a * c * m.mass - m.second;
    sum += part > 0 ? part : 0;
  });
  return sum;
}

/// @brief How often each of l.values is sent, as a magnitude; adds up to 1.
///
/// Without zero, a probability covers both signs: each has half of it if signs are equally frequent.
/// @source Faghri et al. 2020, Propositions 6 and 8
template <Distribution F>
std::vector<double> level_probabilities(F const& f, level_set const& l) {
  std::vector<double> p(l.values.size(), 0.0);
  std::size_t i = l.first_free();
  detail::for_each_gap(f, l, [&](double a, double c, moments const& m) {
    if (i == 0) {
      p[0] += m.mass;  // -l_1 or l_1
    } else {
      p[i - 1] += (c * m.mass - m.first) / (c - a);
      p[i] += (m.first - a * m.mass) / (c - a);
    }
    ++i;
  });
  return p;
}

/// @brief dPsi / dl.values[i], for a level that may move.
/// @source Faghri et al. 2020, equation (6); without zero appendix B.3.1
template <Distribution F>
double variance_derivative(F const& f, level_set const& l, std::size_t i) {
  double const b = l.values[i], c = l.values[i + 1];
  moments const to_b = f.below(b), above = f.below(c) - to_b;
  double const right = c * above.mass - above.first;
  if (i == 0) return 2 * b * to_b.mass - right;
  double const a = l.values[i - 1];
  moments const below = to_b - f.below(a);
  return (below.first - a * below.mass) - right;
}

}  // namespace GLOBALQ_ABI::learn
