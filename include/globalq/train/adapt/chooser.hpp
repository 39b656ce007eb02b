// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: chooses bits and bucket sizes of layers during training, from gradients, tables and a rule.

#include "cgx.hpp"
#include "filter.hpp"
#include "lgreco.hpp"
#include "quantizer_errors.hpp"
#include "selector.hpp"

#include "../../operator/operators.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief CGX's quantizer with parameters set at run time: buckets scaled by their largest magnitude, 2 to 8 bits a
///        value.
/// @source Markov 2024 (thesis), chapter 3
inline any_quantizer cgx_quantizer(bits_and_bucket const& p) {
  return quantizer{norm::local<infinity>{.bucket = p.bucket}, levels::uniform<>{}, rounding::stochastic{},
                   wire::packed<>{p.bits}};
}

/// Options of a chooser; the same on every worker.
struct chooser_options {
  /// The candidates of a layer, from few bits to many. If the reference is not among them, the one of its bits gets its
  /// bucket.
  std::vector<bits_and_bucket> candidates = bits_and_buckets(2, 8, 64, 1024);
  /// A choice known to preserve accuracy; its bits must be among the candidates. Layers begin with it.
  bits_and_bucket reference{4, 128};
  /// The budget is alpha times the reference's error.
  double alpha = 1;
  rule how = rule_of(cgx_kmeans{});
  /// Returns the quantizer with given bits and bucket.
  std::function<any_quantizer(bits_and_bucket const&)> make = cgx_quantizer;
  /// Error of a layer with a candidate, on its accumulated gradient; if empty, the expected squared error of the
  /// quantizer.
  sensitivity measure_by = nullptr;
};

/// @brief Accumulates gradients during training and chooses from them a quantizer for each layer.
///
/// @code
/// gq::adapt::chooser chosen{model, gq::adapt::filter::cgx(), {.how = gq::adapt::rule_of(gq::adapt::lgreco{})}};
/// gq::adapt::overlapped_mean mean{workers, model, chosen.operators(), gq::schedule::sra{}};
/// chosen.add(gradient);                                     // each step, before it is averaged
/// if (chosen.choose(workers, step))                         // now and then, on all workers
///   for (std::size_t l = 0; l < model.size(); ++l) mean.assign(l, chosen.operator_of(l));
/// @endcode
/// Layers that the filter keeps in float32 have no choice. adaptive_mean combines a chooser with a layered_mean.
/// @source Markov 2024 (thesis), Algorithm 3.1 and section 4.5
class chooser {
 public:
  /// @param excluded  layers that travel as float32
  /// @param space     host execution space that measures errors
  /// @throws configuration_error if no candidate has the reference's bits, or alpha is not between 0 and 2^60
  template <class Space = Kokkos::DefaultHostExecutionSpace>
  chooser(model_layout const& model, filter const& excluded, chooser_options options = {},
          Space const& space = Space())
      : options_(with_reference(std::move(options))),
        quantizers_(quantizers_of(options_)),
        selector_(model, {.of = options_.measure_by
                                    ? with_sensitivity(quantizers(quantizers_, space), options_.measure_by)
                                    : quantizers(quantizers_, space),
                          .compress = [excluded](layer const& l) { return !excluded(l); },
                          .reference = place_of_reference(options_),
                          .alpha = options_.alpha,
                          .how = options_.how,
                          .settings = settings_of(options_),
                          .candidates = static_cast<std::uint32_t>(options_.candidates.size())}) {}

  /// @brief Adds this worker's gradient, before it is averaged.
  /// @returns false if it contains NaN or infinity: nothing was added
  template <class T>
  bool add(std::span<T const> gradient) {
    return selector_.add(gradient);
  }
  template <class T>
  bool add(std::vector<T> const& gradient) {
    return selector_.add(std::span<T const>(gradient));
  }
  /// @brief Adds the gradient of one layer, if layers arrive one by one. A layer that is not added counts as zeros.
  template <class T>
  bool add(std::size_t layer, std::span<T const> gradient) {
    return selector_.add(layer, gradient);
  }
  gradient_accumulator const& accumulated() const { return selector_.accumulated(); }

  /// @brief Chooses from the gradients added since the last choice, the same on all workers, and clears the sums.
  ///
  /// See selector::choose for results and errors.
  /// @param step  of the training, the same on every worker
  template <Transport T>
  std::optional<selection> choose(T& workers, std::uint64_t step) {
    return selector_.choose(workers, step);
  }

  /// The table that this worker would contribute now.
  choice_table table() const { return selector_.table(); }

  /// Whether a layer has a choice, that is, is quantized.
  bool quantizes(std::size_t layer) const { return selector_.has_choice(layer); }
  /// The bits and bucket of a layer now; {32, 0} for a layer in float32.
  bits_and_bucket choice(std::size_t layer) const {
    return quantizes(layer) ? options_.candidates[selector_.choices()[layer]] : bits_and_bucket{32, 0};
  }
  any_quantizer operator_of(std::size_t layer) const {
    return quantizes(layer) ? quantizers_[selector_.choices()[layer]] : any_quantizer(uncompressed{});
  }
  /// The operators of all layers.
  std::vector<any_quantizer> operators() const {
    std::vector<any_quantizer> all;
    for (std::size_t l = 0; l < accumulated().model().size(); ++l) all.push_back(operator_of(l));
    return all;
  }
  chooser_options const& options() const { return options_; }

 private:
  /// If the reference is not a candidate, gives its bucket to the candidate of its bits.
  static chooser_options with_reference(chooser_options options) {
    auto& all = options.candidates;
    auto same_bits = std::find(all.begin(), all.end(), options.reference);
    if (same_bits == all.end())
      same_bits = std::find_if(all.begin(), all.end(),
                               [&](bits_and_bucket const& c) { return c.bits == options.reference.bits; });
    if (same_bits == all.end())
      throw configuration_error("globalq: adapt::chooser: none of the " + std::to_string(all.size()) +
                                " candidates has the " + std::to_string(options.reference.bits) +
                                " bits of the reference; add the reference");
    same_bits->bucket = options.reference.bucket;
    return options;
  }
  static std::uint32_t place_of_reference(chooser_options const& options) {
    auto const& all = options.candidates;
    return static_cast<std::uint32_t>(std::find(all.begin(), all.end(), options.reference) - all.begin());
  }
  static std::vector<any_quantizer> quantizers_of(chooser_options const& options) {
    std::vector<any_quantizer> all;
    for (bits_and_bucket const& c : options.candidates) all.push_back(options.make(c));
    return all;
  }
  static std::uint64_t settings_of(chooser_options const& options) {
    std::uint64_t h = options.measure_by ? 1 : 0;
    for (bits_and_bucket const& c : options.candidates)
      for (std::uint64_t const x : {std::uint64_t{c.bits}, c.bucket}) h = globalq::detail::hash(h, x);
    return h;
  }

  chooser_options options_;
  std::vector<any_quantizer> quantizers_;
  selector selector_;
};

}  // namespace GLOBALQ_ABI::adapt
