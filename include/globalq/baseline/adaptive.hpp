// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: chooses densities or ranks of layers during training, by L-GreCo or Accordion.

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
/// `assign(parameters)`, or `assign(parameters, step)` if new state is random, sets the parameter of each layer on all
/// workers.
template <class C>
concept LayeredCompressor = std::copyable<C> &&
    requires(C& c, C const& fixed, std::span<typename C::parameter const> all, std::uint64_t step) {
  { fixed.layers() } -> std::same_as<adapt::model_layout const&>;
  requires requires { c.assign(all); } || requires {
    c.assign(all, step);
  };
};

/// @brief The family of densities: costs and errors of Top-K.
inline adapt::family family_of(std::vector<double> const& densities) { return adapt::top_k(densities); }
/// @brief The family of ranks: costs and errors of PowerSGD.
inline adapt::family family_of(std::vector<int> const& ranks) {
  return adapt::low_rank({ranks.begin(), ranks.end()});
}

/// Parameters of an adaptive compressor; the same on every worker.
template <class Parameter>
struct adaptive_options {
  std::vector<Parameter> candidates = {};  ///< the parameters to choose from, such as adapt::around(0.01, 9)
  Parameter reference{};  ///< one of the candidates: layers begin with it, and its error sets the budget
  double alpha = 1;       ///< the budget is alpha times the reference's error
  adapt::rule how = adapt::rule_of(adapt::lgreco{});
  std::uint64_t every = 500;  ///< calls between choices; 0: never
  /// Costs and errors of the candidates, in order; if empty, family_of(candidates).
  adapt::family of = nullptr;
  std::function<bool(adapt::layer const&)> compress = nullptr;  ///< the layers that have a choice; empty: all
};

/// @brief A compressor with error feedback; after every `every` calls it chooses the parameter of each layer anew.
///
/// By default it uses L-GreCo: the fewest bytes whose total error is at most that of the reference. With
/// adapt::accordion_rule it uses Accordion, or both together.
/// @code
/// gq::baseline::adaptive mean{gq::baseline::power_sgd{model, {.rank = 4}},
///                               {.candidates = {2, 3, 4, 5, 6, 7, 8}, .reference = 4, .every = 500}};
/// mean.reduce(workers, gradient, y, step);
/// @endcode
/// Errors are measured on gradients accumulated since the last choice, without the residual of error feedback; the sums
/// take one float32 for each value of the model. The residual does not change when parameters change. A choice follows
/// the mean of a call: it takes one or several passes over the model, and messages; its errors are thrown after the
/// mean has been written. If the environment forces plain float32, nothing is chosen.
/// @determinism bit-identical on all workers
/// @source Markov 2024 (thesis), chapter 4 (L-GreCo), sections 4.5 and 4.6.3
template <LayeredCompressor C>
class adaptive {
 public:
  using parameter = typename C::parameter;

  /// @throws configuration_error if the reference is not among the candidates, and as selector and C::assign do
  explicit adaptive(C inner, adaptive_options<parameter> options)
      : feedback_(std::move(inner)),
        options_(std::move(options)),
        selector_(feedback_.layers(), told(options_)) {
    assign(0);
  }

  adapt::model_layout const& layers() const { return feedback_.layers(); }

  /// @brief See error_feedback::reduce.
  /// @throws as error_feedback::reduce and selector::choose do
  template <class T>
  requires Compressor<C, T> outcome reduce(T& workers, std::span<float const> g, std::span<float> mean,
                                           std::uint64_t step, float carry = 1.0F) {
    bool const chooses = options_.every != 0 && !forced_;
    // the compressor refuses a wrong length, on all workers
    if (chooses && g.size() == layers().length()) selector_.add(g);
    outcome const result = feedback_.reduce(workers, g, mean, step, carry);
    if (chooses && ++calls_ % options_.every == 0) {
      found_ = selector_.choose(workers, step);
      if (found_) assign(step);
    }
    return result;
  }

  /// The parameter of a layer now.
  parameter parameter_of(std::size_t layer) const {
    return selector_.has_choice(layer) ? options_.candidates[selector_.choices()[layer]] : options_.reference;
  }
  /// The last choice; empty before the first one, or if a worker had no gradient to measure.
  std::optional<adapt::selection> const& found() const { return found_; }
  /// The compressor with its residual.
  error_feedback<C> const& feedback() const { return feedback_; }

  /// @brief Returns the state that this worker keeps between steps: that of error_feedback, and the parameters of
  ///        layers.
  ///
  /// Not included are the accumulated gradients, so the window for the next choice begins again, and the state of a
  /// rule, such as Accordion's norms; after a load, Accordion treats the first window as critical for all layers, as at
  /// the start.
  state save(int workers, int rank) const {
    state s = feedback_.save(workers, rank);
    std::vector<float> const choices(selector_.choices().begin(), selector_.choices().end());
    s.put(choices_key, choices);
    s.put(parameters_key, parameters());
    return s;
  }
  /// @brief Restores a saved state; see error_feedback::load.
  /// @throws as error_feedback::load does; frame_error if a layer would get another parameter than it had, because
  ///         candidates or reference differ. Nothing is changed then.
  void load(std::span<state const> saved, int workers, int rank) {
    adaptive other = *this;
    if (!saved.empty()) {
      std::vector<std::uint32_t> choices;
      for (float const c : saved[0].get(choices_key, layers().size())) {
        if (!(c >= 0 && c < static_cast<float>(options_.candidates.size())))
          throw frame_error("globalq: baseline::adaptive: a layer had the candidate " + std::to_string(c) +
                            " of " + std::to_string(options_.candidates.size()) +
                            "; load a state saved with the same candidates");
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
                            "; load a state saved with the same candidates and reference");
      other.assign(0);
    }
    other.feedback_.load(saved, workers, rank);
    other.calls_ = 0;
    *this = std::move(other);
  }

 private:
  static constexpr char const *choices_key = "adaptive/choices", *parameters_key = "adaptive/parameters";

  /// The parameter of each layer, as float32, the type of a state's numbers.
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
                                std::to_string(all.size()) + " candidates; add it");
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

  /// Sets the chosen parameters in the compressor.
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
