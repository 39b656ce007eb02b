// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: bits and bucket sizes of layers, chosen anew while training: gradients, tables, a rule, one choice for all.

#include "agree.hpp"
#include "cgx.hpp"
#include "filter.hpp"
#include "lgreco.hpp"
#include "quantiser_errors.hpp"

#include "../operators.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

namespace globalq::adapt {

/// @brief How a choice is made: rule(table, points, budget, reference) -> selection.
///
/// The reference is a choice that keeps the budget where alpha is 1 or more.
using rule = std::function<selection(choice_table const&, std::span<layer_point const>, double,
                                     std::span<std::uint32_t const>)>;

/// @brief A rule of lgreco, cgx_kmeans, cgx_linear or cgx_bayes with its settings.
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

/// @brief CGX's quantiser with parameters of run time: buckets scaled by their largest magnitude, 2 to 8 bits a value.
/// @source Markov 2024 (thesis), chapter 3
inline any_quantizer cgx_quantizer(bits_and_bucket const& p) {
  return quantizer{norm::local<infinity>{.bucket = p.bucket}, levels::uniform<>{}, rounding::stochastic{},
                   wire::packed<>{p.bits}};
}

/// Options of a chooser; the same on every worker.
struct chooser_options {
  /// What layers choose among, from few bits to many. Where the reference is not among them, that of its bits takes its bucket.
  std::vector<bits_and_bucket> candidates = bits_and_buckets(2, 8, 64, 1024);
  /// What is known to keep the accuracy; it, or its bits, are among the candidates. Layers begin with it.
  bits_and_bucket reference{4, 128};
  /// The budget is alpha times the reference's error.
  double alpha = 1;
  rule how = rule_of(cgx_kmeans{});
  /// The quantiser with given bits and bucket.
  std::function<any_quantizer(bits_and_bucket const&)> make = cgx_quantizer;
};

/// @brief Which quantiser each layer has, chosen from gradients that are accumulated while training.
///
/// @code
/// gq::adapt::chooser chosen{model, gq::adapt::filter::cgx(), {.how = gq::adapt::rule_of(gq::adapt::lgreco{})}};
/// gq::adapt::overlapped_mean mean{workers, model, chosen.operators(), gq::schedule::sra{}};
/// chosen.add(gradient);                                     // each step, before it is averaged
/// if (chosen.choose(workers, step))                         // now and then, on all workers
///   for (std::size_t l = 0; l < model.size(); ++l) mean.assign(l, chosen.operator_of(l));
/// @endcode
/// Layers that the filter keeps in float32 have no choice. adaptive_mean is this around a layered_mean.
/// @source Markov 2024 (thesis), Algorithm 3.1 and section 4.5
class chooser {
 public:
  /// @param excluded  layers that travel as float32
  /// @param space     where errors are measured; a host execution space
  /// @throws configuration_error when the reference's bits are not among the candidates, or alpha is no number of at least 0
  template <class Space = Kokkos::DefaultHostExecutionSpace>
  chooser(layout const& model, filter const& excluded, chooser_options options = {},
          Space const& space = Space())
      : excluded_(excluded), options_(std::move(options)), sum_(model) {
    auto& all = options_.candidates;
    auto same_bits = std::find(all.begin(), all.end(), options_.reference);
    if (same_bits == all.end())
      same_bits = std::find_if(all.begin(), all.end(),
                               [&](bits_and_bucket const& c) { return c.bits == options_.reference.bits; });
    if (same_bits == all.end())
      throw configuration_error("globalq: adapt::chooser: the reference has " +
                                std::to_string(options_.reference.bits) + " bits, and none of the " +
                                std::to_string(all.size()) +
                                " candidates has; add one, so that layers can keep what they begin with");
    if (!is_finite(options_.alpha) || options_.alpha < 0 || options_.alpha > 0x1p60)
      throw configuration_error("globalq: adapt::chooser: alpha is " + detail::text_of(options_.alpha) +
                                "; give a number from 0 to 2^60, such as 1");
    same_bits->bucket = options_.reference.bucket;
    reference_ = static_cast<std::uint32_t>(same_bits - all.begin());
    for (bits_and_bucket const& c : all) quantisers_.push_back(options_.make(c));
    errors_ = quantisers(quantisers_, space);
    choices_.assign(model.size(), reference_);
  }

  /// @brief Adds this worker's gradient, before it is averaged.
  /// @returns false when it holds NaN or infinity: nothing was added
  template <class T>
  bool add(std::span<T const> gradient) {
    return sum_.add(gradient);
  }
  template <class T>
  bool add(std::vector<T> const& gradient) {
    return sum_.add(gradient);
  }
  gradient_accumulator const& accumulated() const { return sum_; }

  /// @brief Chooses from what was added since the last time, on all workers alike, and begins to add anew.
  ///
  /// Errors are those of all workers' sums; sizes and norms are those that worker 0 has.
  /// @param step  of the training, the same on every worker
  /// @returns     what was found; nothing, on every worker, when one of them has added no gradient, or could not measure it and
  ///              throws: the choice stays
  /// @throws      as agree() does; configuration_error on every worker where a rule finds nothing within the budget, which
  ///              needs an alpha below 1
  /// @complexity  a pass over the model for each candidate; agree()'s messages
  template <Transport T>
  std::optional<selection> choose(T& workers, std::uint64_t step) {
    choice_table mine;  // empty where this worker has nothing to tell
    std::exception_ptr failed;
    try {
      if (sum_.steps() != 0) mine = table();
    } catch (error const&) {
      failed = std::current_exception();  // the others wait for this worker
    }
    std::uint64_t settings = bits_of(options_.alpha);
    for (std::uint64_t const number : {std::uint64_t{options_.reference.bits}, options_.reference.bucket})
      settings = globalq::detail::hash(settings, number);
    auto found = agree(workers, mine,
                       [&](choice_table const& all) {
                         std::vector<std::uint32_t> const uniform = uniform_choice(all, reference_);
                         return options_.how(all, points(), budget_of(all, uniform, options_.alpha), uniform);
                       },
                       {step, settings});
    sum_.clear();
    if (failed) std::rethrow_exception(failed);
    if (found) choices_ = found->choices;
    return found;
  }

  /// The table that this worker would bring.
  choice_table table() const {
    return measure(sum_, errors_, [&](layer const& l) { return has_choice(l); });
  }

  /// Whether a layer is quantised at all.
  bool quantises(std::size_t layer) const { return has_choice(sum_.model()[layer]); }
  /// What a layer has now; of a layer in float32: {32, 0}.
  bits_and_bucket choice(std::size_t layer) const {
    return quantises(layer) ? options_.candidates[choices_[layer]] : bits_and_bucket{32, 0};
  }
  any_quantizer operator_of(std::size_t layer) const {
    return quantises(layer) ? quantisers_[choices_[layer]] : any_quantizer(uncompressed{});
  }
  /// One for each layer.
  std::vector<any_quantizer> operators() const {
    std::vector<any_quantizer> all;
    for (std::size_t l = 0; l < choices_.size(); ++l) all.push_back(operator_of(l));
    return all;
  }
  chooser_options const& options() const { return options_; }

 private:
  bool has_choice(layer const& l) const { return !excluded_(l) && l.size != 0; }
  std::vector<layer_point> points() const {
    std::vector<layer_point> all;
    for (std::size_t l = 0; l < choices_.size(); ++l)
      all.push_back({static_cast<double>(sum_.model()[l].size), sum_.norm(l)});
    return all;
  }

  filter excluded_;
  chooser_options options_;
  gradient_accumulator sum_;
  std::uint32_t reference_ = 0;
  std::vector<any_quantizer> quantisers_;
  family errors_;
  std::vector<std::uint32_t> choices_;  ///< of layers without a choice: anything
};

}  // namespace globalq::adapt
