// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: Accordion: less compression while a layer's gradients change, more after they have settled.

#include "choices.hpp"
#include "rule.hpp"

#include <optional>
#include <utility>

namespace GLOBALQ_ABI::adapt {

/// @brief Decides for each layer whether it is in a critical regime of its training.
///
/// A regime is critical if the norm of the layer's gradient, accumulated over a window (an epoch, for example), has
/// changed by eta times its former value or more, or if the learning rate is about to fall. The first window is
/// critical: training begins with little compression.
/// @determinism  a function of the norms. If gradients differ between workers, agree on the norms first; the norms of
///               the mean are the same on all workers. choices() may compute the reference of lgreco on worker 0.
/// @source       Agarwal et al. 2021 (Accordion), Algorithm 1; Markov 2024 (thesis), section 4.6.3 with eta = 0.5
class accordion {
 public:
  /// @param layers  number of layers
  /// @param eta     relative change from which a regime is critical; the authors use 0.5
  /// @throws        configuration_error unless eta is positive and finite
  explicit accordion(std::size_t layers, double eta = 0.5)
      : eta_(eta), norms_(layers, -1.0), critical_(layers, true) {
    if (!(is_finite(eta) && eta > 0))
      throw configuration_error("globalq: accordion: eta " + detail::text_of(eta) +
                                " is not a positive number; the authors use 0.5");
  }

  /// @brief Takes the norms of the window that has ended, and decides which layers are critical in the next one.
  ///
  /// A layer whose norm is NaN or infinite is critical; its next norm is compared with its last finite one. A layer
  /// whose norm was zero is critical as soon as its norm is positive.
  /// @param norms          l2 norm of each layer's accumulated gradient, not negative
  /// @param learning_rate  of the window that has ended
  /// @param next_rate      of the next one; a smaller one makes every layer critical
  /// @returns              for each layer whether it is critical
  /// @throws               configuration_error if the number of layers differs, or a norm is negative
  std::vector<bool> const& update(std::span<double const> norms, double learning_rate = 0,
                                  double next_rate = 0) {
    if (norms.size() != norms_.size())
      throw configuration_error("globalq: accordion: " + std::to_string(norms.size()) + " norms for " +
                                std::to_string(norms_.size()) + " layers; give one for each layer");
    for (std::size_t l = 0; l < norms.size(); ++l)
      if (is_finite(norms[l]) && norms[l] < 0)
        throw configuration_error("globalq: accordion: the norm " + detail::text_of(norms[l]) + " of layer " +
                                  std::to_string(l) + " is negative");
    bool const decays = next_rate < learning_rate;
    for (std::size_t l = 0; l < norms.size(); ++l) {
      double const before = norms_[l], now = norms[l];
      if (!is_finite(now)) {
        critical_[l] = true;
        continue;
      }
      bool const first = before < 0, both_zero = before == 0 && now == 0;
      critical_[l] = decays || first || (!both_zero && std::fabs(before - now) >= eta_ * before);
      norms_[l] = now;
    }
    return critical_;
  }

  /// For each layer whether it is critical; before the first update all are.
  std::vector<bool> const& critical() const { return critical_; }

  /// @brief Accordion's own choice, or the reference of L-GreCo if both are combined: `less` compression for critical
  ///        layers, `more` for the others.
  ///
  /// @code
  /// auto const reference = regimes.choices(rank_64, rank_16);
  /// auto const found = gq::adapt::lgreco{}(table, gq::adapt::budget_of(table, reference), reference);
  /// @endcode
  /// @param less, more  a candidate of each layer, such as uniform_choice(table, 5)
  /// @source            Markov 2024 (thesis), section 4.6.3 and Table 4.5, "L-GreCo + Accordion"
  std::vector<std::uint32_t> choices(std::span<std::uint32_t const> less,
                                     std::span<std::uint32_t const> more) const {
    if (less.size() != critical_.size() || more.size() != critical_.size())
      throw configuration_error("globalq: accordion: choices for " + std::to_string(less.size()) + " and " +
                                std::to_string(more.size()) + " layers instead of " +
                                std::to_string(critical_.size()) + "; give one for each layer");
    std::vector<std::uint32_t> c(critical_.size());
    for (std::size_t l = 0; l < c.size(); ++l) c[l] = critical_[l] ? less[l] : more[l];
    return c;
  }

 private:
  double eta_;
  std::vector<double> norms_;  // of the last window; -1: none yet
  std::vector<bool> critical_;
};

/// Parameters of accordion_rule; `less` should be the candidate that layers begin with.
struct accordion_rule_options {
  std::uint32_t less = 0;  ///< number of the candidate of critical layers
  std::uint32_t more = 0;  ///< number of the candidate of the other layers
  double eta = 0.5;        ///< see accordion
  rule within = nullptr;   ///< inner rule; empty: Accordion's own choice
  double alpha = 1;        ///< the budget of the inner rule is alpha times the error of Accordion's choice
  /// Returns the learning rates of the window that has ended and of the next one; empty: they never fall.
  std::function<std::pair<double, double>()> rates = nullptr;
};

/// @brief Accordion as the rule of a chooser or of baseline::adaptive: alone, or setting the budget of an inner rule.
///
/// A window is the time between two choices. Alone, the rule gives every layer one of two candidates. With lgreco as
/// the inner rule, these two are only the reference: each layer gets the cheapest candidates within their error. The
/// rule ignores the budget and the reference that it receives. Layers use that reference in the first window, though,
/// before the first choice; make it the candidate `less`, because the first window is critical:
/// @code
/// gq::adapt::chooser_options const choice{
///     .reference = {8, 64},  // the last one of the seven candidates
///     .how = gq::adapt::accordion_rule({.less = 6, .more = 1, .within = gq::adapt::rule_of(gq::adapt::lgreco{})})};
/// @endcode
/// The norms are those of worker 0, which runs rules. A copy of the rule has regimes of its own.
/// @returns a rule that throws configuration_error for a candidate that layers do not have, and the errors of accordion
///          and of the inner rule
/// @source  Agarwal et al. 2021 (Accordion), Algorithm 1; Markov 2024 (thesis), section 4.6.3 and Table 4.5
inline rule accordion_rule(accordion_rule_options options) {
  return [options = std::move(options), regimes = std::optional<accordion>()](
             choice_table const& table, std::span<layer_point const> points, double,
             std::span<std::uint32_t const>) mutable {
    if (!regimes) regimes.emplace(table.size(), options.eta);
    std::vector<double> norms;
    for (layer_point const& p : points) norms.push_back(p.norm);
    auto const [now, next] = options.rates ? options.rates() : std::pair(0.0, 0.0);
    regimes->update(norms, now, next);
    std::vector<std::uint32_t> own =
        regimes->choices(uniform_choice(table, options.less), uniform_choice(table, options.more));
    if (!options.within) return detail::selection_of(table, std::move(own), 0, false);
    return options.within(table, points, budget_of(table, own, options.alpha), own);
  };
}

}  // namespace GLOBALQ_ABI::adapt
