// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: densities and ranks of layers, chosen anew while training: L-GreCo and Accordion.

#include "../train/adapt/lgreco.hpp"
#include "../train/adapt/selector.hpp"
#include "detail/caller.hpp"
#include "error_feedback.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// @brief A compressor whose layers may have different parameters, such as top_k (densities) and power_sgd (ranks).
///
/// `assign(parameters)`, or `assign(parameters, step)` where new state is random, gives each layer its own; on all workers alike.
template <class C>
concept LayeredCompressor = std::copyable<C> &&
    requires(C& c, C const& fixed, std::span<typename C::parameter const> all, std::uint64_t step) {
  { fixed.layers() } -> std::same_as<adapt::model_layout const&>;
  requires requires { c.assign(all); } || requires {
    c.assign(all, step);
  };
};

/// @brief The costs and errors of densities: those of Top-K.
inline adapt::family family_of(std::vector<double> const& densities) { return adapt::top_k(densities); }
/// @brief The costs and errors of ranks: those of PowerSGD.
inline adapt::family family_of(std::vector<int> const& ranks) {
  return adapt::low_rank({ranks.begin(), ranks.end()});
}

/// Parameters of an adaptive compressor; the same on every worker.
template <class Parameter>
struct adaptive_options {
  std::vector<Parameter> candidates = {};  ///< what layers choose among, such as adapt::around(0.01, 9)
  Parameter reference{};  ///< one of them: what layers begin with, and whose error is the budget
  double alpha = 1;       ///< the budget is alpha times the reference's error
  adapt::rule how = adapt::rule_of(adapt::lgreco{});
  std::uint64_t every = 500;  ///< calls between choices; 0: never
  adapt::family of =
      nullptr;  ///< costs and errors of the candidates, in their order; none: family_of(candidates)
  std::function<bool(adapt::layer const&)> compress = nullptr;  ///< the layers that have a choice; none: all
};

/// @brief A compressor in error feedback; every so many calls each layer gets the parameter that suits its gradients.
///
/// With its defaults L-GreCo: the fewest bytes whose error is at most that of the reference everywhere. With
/// adapt::accordion_rule Accordion, or both together.
/// @code
/// gq::baseline::adaptive mean{gq::baseline::power_sgd{model, {.rank = 4}},
///                               {.candidates = {2, 3, 4, 5, 6, 7, 8}, .reference = 4, .every = 500}};
/// mean.reduce(workers, gradient, y, step);
/// @endcode
/// Errors are measured on gradients as they come, added up since the last choice in float32 memory as long as the model,
/// without what error feedback adds; the feedback stays as it is when parameters change. A choice is made after the mean of a
/// call: it costs a pass over the model or some, and messages; what it throws is thrown when the mean has been written.
/// With plain float32 forced by the environment nothing is chosen.
/// @determinism bit-identical on all workers
/// @source Markov 2024 (thesis), chapter 4 (L-GreCo), sections 4.5 and 4.6.3
template <LayeredCompressor C>
class adaptive {
 public:
  using parameter = typename C::parameter;

  /// @throws configuration_error when the reference is not among the candidates, and as selector and C::assign do
  explicit adaptive(C inner, adaptive_options<parameter> options)
      : feedback_(std::move(inner)),
        options_(std::move(options)),
        selector_(feedback_.layers(), told(options_)) {
    assign(0);
  }

  adapt::model_layout const& layers() const { return feedback_.layers(); }

  /// @brief See error_feedback::reduce.
  /// @throws as it does, and as selector::choose does
  template <class T>
  requires Compressor<C, T> outcome reduce(T& workers, std::span<float const> g, std::span<float> mean,
                                           std::uint64_t step, float carry = 1.0F) {
    bool const chooses = options_.every != 0 && !forced_;
    // a length that does not fit is refused by the compressor, on all workers
    if (chooses && g.size() == layers().length()) selector_.add(g);
    outcome const result = feedback_.reduce(workers, g, mean, step, carry);
    if (chooses && ++calls_ % options_.every == 0) {
      found_ = selector_.choose(workers, step);
      if (found_) assign(step);
    }
    return result;
  }

  /// What a layer has now.
  parameter parameter_of(std::size_t layer) const {
    return selector_.has_choice(layer) ? options_.candidates[selector_.choices()[layer]] : options_.reference;
  }
  /// What was found last: nothing before the first choice, or where a worker had no gradient to measure on.
  std::optional<adapt::selection> const& found() const { return found_; }
  /// The compressor with what it has not sent yet.
  error_feedback<C> const& feedback() const { return feedback_; }

  /// @brief What this worker keeps between steps: that of error_feedback, and what each layer has.
  ///
  /// Not kept: what was added up for the next choice, whose window begins anew; and what a rule keeps by itself, such as
  /// Accordion's norms, so that to it the first window after a load is critical everywhere, as at the start.
  state save(int workers, int rank) const {
    state s = feedback_.save(workers, rank);
    std::vector<float> const choices(selector_.choices().begin(), selector_.choices().end());
    s.put(choices_key, choices);
    s.put(parameters_key, parameters());
    return s;
  }
  /// @brief Takes up what was saved; see error_feedback::load.
  /// @throws as it does; frame_error where a layer would not have what it had, as candidates or the reference are others.
  ///         Nothing is changed then.
  void load(std::span<state const> saved, int workers, int rank) {
    adaptive other = *this;
    if (!saved.empty()) {
      std::vector<std::uint32_t> choices;
      for (float const c : saved[0].get(choices_key, layers().size())) {
        if (!(c >= 0 && c < static_cast<float>(options_.candidates.size())))
          throw frame_error("globalq: baseline::adaptive: a layer had the candidate " + std::to_string(c) +
                            " of " + std::to_string(options_.candidates.size()) +
                            "; load what was saved with the same candidates");
        choices.push_back(static_cast<std::uint32_t>(c));
      }
      other.selector_.assign(std::move(choices));
      auto const had = saved[0].get(parameters_key, layers().size());
      std::vector<float> const has = other.parameters();
      for (std::size_t l = 0; l < has.size(); ++l)
        if (has[l] != had[l])
          throw frame_error("globalq: baseline::adaptive: layer \"" + layers()[l].name + "\" had " +
                            adapt::detail::text_of(static_cast<double>(had[l])) + " and would have " +
                            adapt::detail::text_of(static_cast<double>(has[l])) +
                            "; load what was saved with the same candidates and reference");
      other.assign(0);
    }
    other.feedback_.load(saved, workers, rank);
    other.calls_ = 0;
    *this = std::move(other);
  }

 private:
  static constexpr char const *choices_key = "adaptive/choices", *parameters_key = "adaptive/parameters";

  /// What each layer has, as float32, which a state holds.
  std::vector<float> parameters() const {
    std::vector<float> all;
    for (std::size_t l = 0; l < layers().size(); ++l) all.push_back(static_cast<float>(parameter_of(l)));
    return all;
  }

  static adapt::selector_options told(adaptive_options<parameter> const& options) {
    auto const& all = options.candidates;
    auto const found = std::find(all.begin(), all.end(), options.reference);
    if (found == all.end())
      throw configuration_error("globalq: baseline::adaptive: the reference " +
                                std::to_string(options.reference) + " is not among the " +
                                std::to_string(all.size()) +
                                " candidates; add it, so that layers can keep what they begin with");
    std::uint64_t settings = 0;
    for (parameter const p : all) settings = detail::hash_of(settings, static_cast<double>(p));
    return {.of = options.of ? options.of : family_of(all),
            .compress = options.compress,
            .reference = static_cast<std::uint32_t>(found - all.begin()),
            .alpha = options.alpha,
            .how = options.how,
            .settings = settings,
            .candidates = static_cast<std::uint32_t>(all.size())};
  }

  /// Gives the compressor what was chosen.
  void assign(std::uint64_t step) {
    std::vector<parameter> parameters;
    for (std::size_t l = 0; l < layers().size(); ++l) parameters.push_back(parameter_of(l));
    if constexpr (requires { feedback_.inner().assign(parameters); })
      feedback_.inner().assign(parameters);
    else
      feedback_.inner().assign(parameters, step);
  }

  error_feedback<C> feedback_;
  adaptive_options<parameter> options_;
  adapt::selector selector_;
  std::uint64_t calls_ = 0;
  std::optional<adapt::selection> found_;
  bool forced_ = globalq::detail::float32_forced();
};

template <class C>
adaptive(C, adaptive_options<typename C::parameter>) -> adaptive<C>;

}  // namespace GLOBALQ_ABI::baseline
