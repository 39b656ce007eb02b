// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the levels of a named operator, learned from the vectors that are averaged, as its paper does.

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

/// @brief Learns levels at scheduled steps, from those in use on, and hands them to a call; does nothing for other operators.
///
/// All workers learn from all of them: they exchange histograms of magnitudes, one of them solves, and all get its bits. Where the
/// first call is behind a scheduled step, as in a training that is resumed, levels are learned in it.
class level_learning {
 public:
  /// @param words  of the operator; a short last bucket that travels as float32 teaches nothing
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
    options.settings = static_cast<std::uint32_t>(now_->values.size() * 4 + (now_->zero_free ? 2U : 0U) +
                                                  (how.what == learning::way::multiplier ? 1U : 0U));
    options.weights =
        how.normalized ? globalq::learn::weighting::equal : globalq::learn::weighting::squared_norms;
    learner_.emplace(globalq::norm::local<>{facts.q, facts.bucket}, solver(how.what), options);
  }

  /// @brief New levels for @p mean, where the step is one at which they change. All workers call it alike.
  /// @param x     this worker's vector, before the mean
  /// @param mean  has set_levels: an allreduce_mean of the operator
  /// @param on    runs the statistics; else what the transport's workers run on
  /// @returns     whether levels changed
  /// @throws      what the library throws, on all workers alike
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

  /// How many of a vector's values, counted from the first, teach levels.
  std::size_t taught_by(std::size_t length) const { return length - (tail_of_ == 0 ? 0 : length % tail_of_); }

  /// Levels in use, ascending to 1; none where nothing is learned.
  std::vector<double> levels() const { return now_ ? now_->values : std::vector<double>{}; }

 private:
  /// The paper's own solvers. They begin where levels are, which is shared with them: only one worker solves, and all know.
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

  std::uint64_t tail_of_ = 0;  ///< bucket whose left-over values are not quantized; 0: all are
  std::shared_ptr<globalq::learn::level_set> now_;
  std::optional<globalq::learn::level_learner<globalq::norm::local<>>> learner_;
};

}  // namespace GLOBALQ_ABI::named
