// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: error feedback: adds the residual of a compressor to the next vector.

#include "concept.hpp"
#include "detail/blocks.hpp"
#include "state.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

namespace detail {

/// p = carry * e + g.
GLOBALQ_LOOP void add_error(float const* __restrict g, float const* __restrict e, float carry,
                            std::uint64_t count, float* __restrict p) {
  if (carry == 1.0F)
    for (std::uint64_t i = 0; i < count; ++i) p[i] = g[i] + e[i];
  else
    for (std::uint64_t i = 0; i < count; ++i) p[i] = g[i] + carry * e[i];
}

}  // namespace detail

/// @brief Adds the residual of a compressor to the next vector: p = g + e; c = C(p); e = p - c.
///
/// The sum of all messages is therefore the sum of all vectors minus the last residual, up to float rounding: a biased
/// compressor converges where it would stall by itself.
/// @code
/// gq::baseline::error_feedback ef{gq::baseline::top_k{model, {.density = 0.01}}};
/// ef.reduce(workers, gradient, mean, step);
/// @endcode
/// Takes two vectors of memory and, besides the compressor, one pass that reads two vectors and writes one.
///
/// Residuals stay bounded if the residual of a vector is, in expectation, shorter than the vector. A compressor that
/// does not ensure this declares `bool contracts() const`, and is refused if it returns false: rand_k with its values
/// scaled up would leave (1 - d/k) p of the values it sends, which grows with every call.
/// @source Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019 (EF-SGD), Algorithm 2; changing learning rates: Zheng
///         et al. 2019, Algorithm 1; condition on the compressor: Karimireddy et al. 2019, Assumption A
template <class C>
class error_feedback {
 public:
  /// @throws configuration_error for a compressor whose contracts() is false
  explicit error_feedback(C inner)
      : inner_(std::move(inner)),
        blocks_(detail::blocks_of(detail::runs_of(inner_.layers()))),
        error_(inner_.layers().length()),
        sum_(error_.size()) {
    if constexpr (requires { inner_.contracts(); })
      if (!inner_.contracts())
        throw configuration_error(
            "globalq: error_feedback: the residual of this compressor can exceed its input; use one that "
            "does "
            "not rescale: rand_k with .unbiased = false");
  }

  adapt::model_layout const& layers() const { return inner_.layers(); }
  C& inner() { return inner_; }
  C const& inner() const { return inner_; }

  /// @brief Averages @p g plus the residual of earlier calls.
  /// @param carry  factor of the residual: the learning rate of the previous step divided by this step's, if @p g does
  ///               not contain the learning rate and the rate changes
  /// @returns the outcome of the compressor; the residual changes only if the outcome is a mean
  template <class T>
  requires Compressor<C, T> outcome reduce(T& workers, std::span<float const> g, std::span<float> mean,
                                           std::uint64_t step, float carry = 1.0F) {
    float_environment const exact;
    if (g.size() != error_.size()) {  // the compressor throws, on all workers
      return inner_.reduce(workers, g, mean, {}, step);
    }
    detail::for_blocks(executor_.of(workers), blocks_, [&](std::uint64_t first, std::uint64_t count) {
      detail::add_error(g.data() + first, error_.data() + first, carry, count, sum_.data() + first);
    });
    outcome const result = inner_.reduce(workers, sum_, mean, sum_, step);
    if (result == outcome::mean) std::swap(error_, sum_);
    return result;
  }

  /// The residual. Values between layers are zero.
  std::span<float const> error() const { return error_; }

  /// @brief Restores the residual from before the last reduce(), if that returned a mean; for a caller who discards
  /// that mean. Other state of the compressor, such as PowerSGD's matrices, does not change.
  void undo() { std::swap(error_, sum_); }

  /// Sets the residual to zero, as in a new object.
  void reset() {
    std::fill(error_.begin(), error_.end(), 0.0F);
    std::fill(sum_.begin(), sum_.end(), 0.0F);
  }

  /// @brief Returns all state that this worker keeps between steps: residuals by layer, and the compressor's own state.
  state save(int workers, int rank) const {
    state s(workers, rank);
    for (adapt::layer const& l : layers()) s.put(key(l), std::span(error_).subspan(l.offset, l.size));
    if constexpr (requires { inner_.save(s); }) inner_.save(s);
    return s;
  }

  /// @brief Restores a state that was saved by the same number of workers or another one.
  ///
  /// Layers are found by name, wherever they are now; one that the compressor sends without a residual may be missing.
  /// With another number of workers, residuals are the mean of the old ones (globalq::checkpoint).
  /// @param saved    the worker's own state, or the states of all old workers in any order
  /// @param workers  the current number of workers
  /// @throws frame_error if layers are missing or have other sizes; configuration_error if a worker's state is missing
  ///         or occurs twice. Nothing is changed then.
  void load(std::span<state const> saved, int workers, int rank) {
    checkpoint const from(saved, workers, rank, "error_feedback::load");
    std::vector<float> errors(error_.size());
    for (std::size_t k = 0; k < layers().size(); ++k) {
      adapt::layer const& l = layers()[k];
      if (!from.own().contains(key(l)) && sends_all(k)) continue;
      from.read(key(l), std::span(errors).subspan(l.offset, l.size));
    }
    if constexpr (requires { inner_.load(from.own()); }) inner_.load(from.own());
    error_ = std::move(errors);
    std::fill(sum_.begin(), sum_.end(), 0.0F);
  }

 private:
  /// Whether a layer has no residual.
  bool sends_all(std::size_t layer) const {
    if constexpr (requires { inner_.sends_all(layer); })
      return inner_.sends_all(layer);
    else
      return false;
  }
  static std::string key(adapt::layer const& l) { return "error/" + l.name; }

  C inner_;
  detail::worker_executor executor_;
  std::vector<detail::run> blocks_;
  std::vector<float> error_;
  std::vector<float> sum_;  ///< g + e; then the new residual
};

}  // namespace GLOBALQ_ABI::baseline
