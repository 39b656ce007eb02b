// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: learns the levels of a named operator from the averaged vectors, as in its paper.

#include "operators.hpp"

#include "../train/learn/coordinate_descent.hpp"
#include "../train/learn/level_learner.hpp"
#include "../train/learn/multiplier.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::named {

/// @brief Learns levels at scheduled steps, starting from the current ones, and sets them in a call; for other
/// operators it does nothing.
///
/// The workers exchange histograms of magnitudes, one of them solves, and all receive the same bits. If the first call
/// is after a scheduled step, as when training is resumed, it learns levels.
class level_learning {
 public:
  /// @param words  of the operator; values of a short last bucket that is sent as float32 are not used
  /// @param when   steps at which levels are learned; the same on every worker
  level_learning(description const& words, learning how, globalq::learn::update_schedule when) {
    if (!how) return;
    globalq::any_quantizer const op = make(words);
    globalq::detail::operator_facts const facts = op.facts();
    if (words.tail == "float32") tail_of_ = facts.bucket;
    now_ = std::make_shared<globalq::learn::level_set>();
    now_->zero_free = facts.zero_free;
    now_->values = facts.magnitudes;
    if (!now_->zero_free) now_->values.insert(now_->values.begin(), 0.0);
    globalq::learn::learner_options options;
    options.schedule = std::move(when);
    options.catches_up = true;
    options.stages = facts.chain;
    options.settings = static_cast<std::uint32_t>(now_->values.size() * 4 + (now_->zero_free ? 2U : 0U) +
                                                  (how.what == learning::way::multiplier ? 1U : 0U));
    options.weights =
        how.normalized ? globalq::learn::weighting::equal : globalq::learn::weighting::squared_norms;
    learner_.emplace(globalq::norm::local<>{facts.q, facts.bucket}, solver(how.what), options);
  }

  /// @brief Sets new levels in @p mean if this is a step at which they change. All workers call it alike.
  /// @param x     this worker's vector, before averaging
  /// @param mean  has set_levels: an allreduce_mean of the operator
  /// @param on    executor of the statistics; by default that of the transport's workers
  /// @returns     whether levels changed
  /// @throws      errors of the library, the same on all workers
  template <globalq::Transport T, class Value, class Mean, class... On>
  requires(sizeof...(On) <= 1) bool update(T& workers, std::span<Value const> x, std::uint64_t step,
                                           Mean& mean, On const&... on) {
    if (!learner_) return false;
    auto const found = learner_->update(workers, x.first(taught_by(x.size())), step, on...);
    if (!found) return false;
    *now_ = found->levels;
    if (now_->zero_free)
      mean.set_levels(now_->symmetric());
    else
      mean.set_levels(now_->table());
    return true;
  }

  /// The number of a vector's values, from the first on, from which levels are learned.
  std::size_t taught_by(std::size_t length) const { return length - (tail_of_ == 0 ? 0 : length % tail_of_); }

  /// Current levels, ascending to 1; empty if nothing is learned.
  std::vector<double> levels() const { return now_ ? now_->values : std::vector<double>{}; }

 private:
  /// The papers' solvers. They start from the current levels, which they share with this object: only one worker
  /// solves.
  std::function<globalq::learn::solution(globalq::learn::bins const&)> solver(learning::way what) const {
    return [what, now = now_](globalq::learn::bins const& seen) {
      if (what == learning::way::multiplier)
        return globalq::learn::multiplier{.size = now->size(),
                                          .zero_free = now->zero_free,
                                          .start = now->values[now->values.size() - 2]}(seen);
      return globalq::learn::coordinate_descent{
          .size = now->size(), .zero_free = now->zero_free, .start = *now}(seen);
    };
  }

  std::uint64_t tail_of_ = 0;  ///< bucket size if a short last bucket is not quantized; 0: it is
  std::shared_ptr<globalq::learn::level_set> now_;
  std::optional<globalq::learn::level_learner<globalq::norm::local<>>> learner_;
};

}  // namespace GLOBALQ_ABI::named
