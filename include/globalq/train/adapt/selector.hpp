// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: which candidate each layer has, chosen while training, whatever the candidates are.

#include "../../core/error.hpp"
#include "agree.hpp"
#include "error_table.hpp"
#include "rule.hpp"

#include <exception>
#include <optional>

namespace GLOBALQ_ABI::adapt {

/// What a selector is told; the same on every worker, but for where errors are measured.
struct selector_options {
  family of;  ///< the candidates of a layer, measured on its accumulated gradient
  std::function<bool(layer const&)> compress;  ///< the layers that have a choice; empty: all
  std::uint32_t reference = 0;  ///< the candidate that layers begin with, and whose error is the budget
  double alpha = 1;             ///< the budget is alpha times the reference's error
  rule how;
  std::uint64_t settings = 0;  ///< a number for what the candidates are, which workers compare
  /// How many candidates each layer with a choice has, by which assign() checks; 0: only the family knows.
  std::uint32_t candidates = 0;
};

/// @brief Adds gradients up, and now and then chooses a candidate for each layer, on all workers alike.
///
/// What chooser (quantizers) and baseline::adaptive (densities and ranks) have in common, and for families of one's own.
/// @source Markov 2024 (thesis), Algorithm 3.1 and section 4.5
class selector {
 public:
  /// @throws configuration_error when alpha is no number from 0 to 2^60
  selector(model_layout const& model, selector_options options) : options_(std::move(options)), sum_(model) {
    if (!is_finite(options_.alpha) || options_.alpha < 0 || options_.alpha > 0x1p60)
      throw configuration_error("globalq: adapt: alpha is " + detail::text_of(options_.alpha) +
                                "; give a number from 0 to 2^60, such as 1");
    choices_.assign(model.size(), options_.reference);
  }

  /// @brief Adds this worker's gradient, before it is averaged.
  /// @returns false when it holds NaN or infinity: nothing was added
  template <class T>
  bool add(std::span<T const> gradient) {
    return sum_.add(gradient);
  }
  /// @brief The same of one layer, where they come one by one. A layer that was not added until choose() counts as zeros.
  template <class T>
  bool add(std::size_t layer, std::span<T const> gradient) {
    return sum_.add(layer, gradient);
  }
  gradient_accumulator const& accumulated() const { return sum_; }

  /// @brief Chooses from what was added since the last time, on all workers alike, and begins to add anew.
  ///
  /// Errors are those of all workers' sums; sizes and norms are those that worker 0 has.
  /// @param step  of the training, the same on every worker
  /// @returns     what was found; nothing, on every worker, when one of them has added no gradient, or could not measure it:
  ///              the choice stays
  /// @throws      as agree() does; configuration_error on every worker where a rule throws, as where nothing keeps the budget,
  ///              which needs an alpha below 1; what the family threw, on the worker where it did
  /// @complexity  a pass over the model for each candidate; agree()'s messages
  template <Transport T>
  std::optional<selection> choose(T& workers, std::uint64_t step) {
    choice_table mine;  // empty where this worker has nothing to tell
    std::exception_ptr failed;
    try {
      if (sum_.steps() != 0) mine = table();
    } catch (...) {  // of a family of one's own: whatever it is, the others wait for this worker
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

  /// The table that this worker would bring.
  choice_table table() const {
    return measure(sum_, options_.of, [&](layer const& l) { return has_choice(l); });
  }

  /// Whether a layer has a choice.
  bool has_choice(std::size_t layer) const { return has_choice(sum_.model()[layer]); }
  /// The number of each layer's candidate; of a layer without a choice: any.
  std::vector<std::uint32_t> const& choices() const { return choices_; }
  /// @brief Puts a choice that was made before in place, on all workers alike.
  /// @throws configuration_error for another number of layers, or a candidate that there is not; nothing is changed then
  void assign(std::vector<std::uint32_t> choices) {
    if (choices.size() != choices_.size())
      throw configuration_error("globalq: adapt: " + std::to_string(choices.size()) + " choices for " +
                                std::to_string(choices_.size()) + " layers; give one for each layer");
    for (std::size_t l = 0; l < choices.size(); ++l)
      if (options_.candidates != 0 && has_choice(l) && choices[l] >= options_.candidates)
        throw configuration_error(
            "globalq: adapt: choice " + std::to_string(choices[l]) + " for " + sum_.model()[l].name +
            ", which has " + std::to_string(options_.candidates) + " candidates; they are counted from 0");
    choices_ = std::move(choices);
  }

 private:
  bool has_choice(layer const& l) const {
    return l.size != 0 && (!options_.compress || options_.compress(l));
  }
  /// What workers compare, as one number.
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
