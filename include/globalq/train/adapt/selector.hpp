// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: accumulates gradients and chooses a candidate for each layer during training, for any family of
///        candidates.

#include "../../core/detail/forced_unwind.hpp"
#include "../../core/error.hpp"
#include "agree.hpp"
#include "error_table.hpp"
#include "rule.hpp"

#include <exception>
#include <optional>

namespace GLOBALQ_ABI::adapt {

/// Options of a selector; the same on every worker, except for where errors are measured.
struct selector_options {
  family of;  ///< the candidates of a layer, measured on its accumulated gradient
  std::function<bool(layer const&)> compress;  ///< the layers that have a choice; empty: all
  std::uint32_t reference = 0;  ///< the candidate that layers begin with; its error sets the budget
  double alpha = 1;             ///< the budget is alpha times the reference's error
  rule how;
  std::uint64_t settings = 0;  ///< a hash of the candidates' parameters, which workers compare
  /// The number of candidates of each layer with a choice, for the checks of assign(); 0: only the family knows it.
  std::uint32_t candidates = 0;
};

/// @brief Accumulates gradients, and chooses a candidate for each layer when choose() is called, the same on all
///        workers.
///
/// It is the common part of chooser (quantizers) and baseline::adaptive (densities and ranks), and serves your own
/// families.
/// @source Markov 2024 (thesis), Algorithm 3.1 and section 4.5
class selector {
 public:
  /// @throws configuration_error unless alpha lies between 0 and 2^60
  selector(model_layout const& model, selector_options options) : options_(std::move(options)), sum_(model) {
    if (!is_finite(options_.alpha) || options_.alpha < 0 || options_.alpha > 0x1p60)
      throw configuration_error("globalq: adapt: alpha is " + detail::text_of(options_.alpha) +
                                ", which is not between 0 and 2^60; 1 keeps the error of the reference");
    choices_.assign(model.size(), options_.reference);
  }

  /// @brief Adds this worker's gradient, before it is averaged.
  /// @returns false if it contains NaN or infinity: nothing was added
  template <class T>
  bool add(std::span<T const> gradient) {
    return sum_.add(gradient);
  }
  /// @brief Adds the gradient of one layer, if layers arrive one by one. A layer that is not added counts as zeros.
  template <class T>
  bool add(std::size_t layer, std::span<T const> gradient) {
    return sum_.add(layer, gradient);
  }
  gradient_accumulator const& accumulated() const { return sum_; }

  /// @brief Chooses from the gradients added since the last choice, the same on all workers, and clears the sums.
  ///
  /// Errors are added over the sums of all workers; sizes and norms are those of worker 0.
  /// @param step  of the training, the same on every worker
  /// @returns     the choice; nothing, on every worker, if one of them has added no gradient or could not measure it:
  ///              layers then keep their candidates
  /// @throws      as agree() does; configuration_error on every worker if the rule throws, for example because no
  ///              choice meets the budget (possible only if alpha is below 1); an error of the family, on the worker
  ///              where it was thrown
  /// @complexity  a pass over the model for each candidate; agree()'s messages
  template <Transport T>
  std::optional<selection> choose(T& workers, std::uint64_t step) {
    float_environment const exact;
    choice_table mine;  // empty if this worker has no measurements
    std::exception_ptr failed;
    try {
      if (sum_.steps() != 0) mine = table();
    } catch (globalq::detail::forced_unwind const&) {
      throw;
    } catch (...) {  // from a user's family; go on to agree(), because the other workers wait for this one
      failed = std::current_exception();
    }
    auto found = agree(workers, mine,
                       [&](choice_table const& all) {
                         std::vector<std::uint32_t> const uniform = uniform_choice(all, options_.reference);
                         return options_.how(all, points(), budget_of(all, uniform, options_.alpha), uniform);
                       },
                       {step, settings()});
    sum_.clear();
    if (failed) std::rethrow_exception(failed);
    if (found) choices_ = found->choices;
    return found;
  }

  /// The table that this worker would contribute now.
  choice_table table() const {
    return measure(sum_, options_.of, [&](layer const& l) { return has_choice(l); });
  }

  /// Whether a layer has a choice.
  bool has_choice(std::size_t layer) const { return has_choice(sum_.model()[layer]); }
  /// The number of each layer's candidate; for a layer without a choice it has no meaning.
  std::vector<std::uint32_t> const& choices() const { return choices_; }
  /// @brief Restores an earlier choice; call it on all workers.
  /// @throws configuration_error if the number of layers differs or a candidate does not exist; nothing is changed then
  void assign(std::vector<std::uint32_t> choices) {
    if (choices.size() != choices_.size())
      throw configuration_error("globalq: adapt: " + std::to_string(choices.size()) + " choices for " +
                                std::to_string(choices_.size()) + " layers; give one for each layer");
    for (std::size_t l = 0; l < choices.size(); ++l)
      if (options_.candidates != 0 && has_choice(l) && choices[l] >= options_.candidates)
        throw configuration_error("globalq: adapt: choice " + std::to_string(choices[l]) + " for " +
                                  sum_.model()[l].name + ", which has " +
                                  std::to_string(options_.candidates) + " candidates; choices count from 0");
    choices_ = std::move(choices);
  }

 private:
  bool has_choice(layer const& l) const {
    return l.size != 0 && (!options_.compress || options_.compress(l));
  }
  /// A hash of the settings that workers compare.
  std::uint64_t settings() const {
    std::uint64_t h = options_.settings;
    for (std::uint64_t const x : {std::uint64_t{options_.reference}, bits_of(options_.alpha)})
      h = (h ^ x) * 0x100000001b3U;  // FNV-1a
    return h;
  }
  std::vector<layer_point> points() const {
    std::vector<layer_point> all;
    for (std::size_t l = 0; l < choices_.size(); ++l)
      all.push_back({static_cast<double>(sum_.model()[l].size), sum_.norm(l)});
    return all;
  }

  selector_options options_;
  gradient_accumulator sum_;
  std::vector<std::uint32_t> choices_;
};

}  // namespace GLOBALQ_ABI::adapt
