// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: averages a model's layers with bits and buckets that adapt to its gradients: CGX's engine.

#include "chooser.hpp"
#include "layered_mean.hpp"

#include "../../schedule/hierarchical.hpp"

namespace GLOBALQ_ABI::adapt {

/// Options of an adaptive_mean; the same on every worker.
struct adaptive_options {
  layered_options layers = {};
  chooser_options choice = {};
  /// Calls after which layers get new quantizers; 0: never, so all keep the reference.
  std::uint64_t every = 1000;
  filter excluded = filter::cgx();  ///< layers that travel as float32
};

/// @brief Averages the layers of a model; after every `every` calls it chooses the bits and the bucket of each layer
///        anew.
///
/// The defaults are CGX's engine: 4 bits in buckets of 128 at first; biases, normalization layers and vectors in
/// float32; scatter-reduce-allgather, within nodes and between them if the schedule has nodes; bits from 2 to 8 and
/// buckets from 64 to 1,024, chosen by k-means over sizes and gradient norms within the error of 4 bits everywhere. Any
/// other rule, such as L-GreCo, is an option.
///
/// @code
/// gq::adapt::adaptive_mean mean{workers, model, gq::schedule::hierarchical<>(8),
///                               {.layers = {.call = {.seed = 42}, .warm_up = 100},
///                                .choice = {.how = gq::adapt::rule_of(gq::adapt::lgreco{})},
///                                .every = 500}};
/// mean(gradient, step);
/// @endcode
/// A choice follows the mean of a call, which therefore takes longer: a pass over the model for each candidate, and
/// some messages (see chooser) that telemetry does not report. An error of the choice is thrown after the mean has been
/// written. Calls of the warm-up count, and their gradients are accumulated. Choices use the measurements of all
/// workers and are the same on every worker. Accumulated gradients take one float32 for each value of the model, and a
/// choice allocates.
/// @tparam Transport  a host-memory transport
/// @tparam Schedule   any except native
/// @determinism       bit-identical on all workers; independent of threads and chunks
/// @source Markov 2024 (thesis), chapter 3 (CGX: Algorithm 3.1) and chapter 4 (L-GreCo)
template <class Transport, class Schedule>
class adaptive_mean {
 public:
  /// @throws configuration_error as layered_mean and chooser do
  adaptive_mean(Transport& workers, model_layout const& model, Schedule schedule,
                adaptive_options const& settings = {})
      : workers_(workers),
        every_(settings.every),
        chosen_(model, settings.excluded, settings.choice, globalq::detail::execution_of(workers)),
        mean_(workers, model, chosen_.operators(), std::move(schedule), with_period(settings)) {}

  /// @brief Averages all layers of a vector in place; see layered_mean.
  /// @param x  model.length() values of float32 or float64
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    (*this)(x, x, step);
  }
  /// @brief Averages @p x into @p y.
  /// @throws as layered_mean and chooser::choose do
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    if (every_ == 0 || mean_.forced_to_float32()) return mean_(x, y, step);
    auto const [in, out, length] = globalq::detail::unchecked_pair_of(x, y);
    using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
    static_assert(std::is_same_v<value, float> || std::is_same_v<value, double>,
                  "globalq: adaptive_mean adds gradients up in float32: pass float or double");
    // the mean refuses a wrong length, and reports it to the other workers
    if (length == chosen_.accumulated().model().length() && length == globalq::detail::size_of_vector(y))
      chosen_.add(std::span<value const>(in, length));
    mean_(x, y, step);
    if (++calls_ % every_ != 0) return;
    found_ = chosen_.choose(workers_, step);
    if (found_) mean_.assign(chosen_.operators());
  }

  /// The quantizers of layers, and the gradients accumulated since the last choice.
  chooser const& chosen() const { return chosen_; }
  /// The last choice; empty before the first one, or if a worker had no gradient to measure.
  std::optional<selection> const& found() const { return found_; }
  /// The layered_mean, for its plan and its names.
  layered_mean<Transport, Schedule> const& mean() const { return mean_; }

 private:
  /// The options of the layers, with the period, which workers compare.
  static layered_options with_period(adaptive_options const& settings) {
    layered_options layers = settings.layers;
    layers.others += (layers.others.empty() ? "" : ", ") + ("every " + std::to_string(settings.every));
    return layers;
  }

  Transport& workers_;
  std::uint64_t every_, calls_ = 0;
  chooser chosen_;
  layered_mean<Transport, Schedule> mean_;
  std::optional<selection> found_;
};

template <class T, class S>
adaptive_mean(T&, model_layout, S) -> adaptive_mean<T, S>;
template <class T, class S>
adaptive_mean(T&, model_layout, S, adaptive_options) -> adaptive_mean<T, S>;

}  // namespace GLOBALQ_ABI::adapt
