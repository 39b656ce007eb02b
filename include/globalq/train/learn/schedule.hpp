// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: the training steps at which levels are learned again.

#include "../../core/detail/abi.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace GLOBALQ_ABI::learn {

/// @brief Steps at which levels are updated: single steps, and multiples of a period.
///
/// Gradients change fast in the first steps of a training, and slowly later.
/// @source Faghri et al. 2020, appendix K: steps 100 and 2,000, then every 10,000
struct update_schedule {
  std::vector<std::uint64_t> once{100, 2000};
  std::uint64_t every = 10000;  ///< multiples of it, but not step 0; 0: never

  /// @complexity  O(once.size()); nothing is allocated
  /// @determinism a pure function of the step, so all workers with equal schedules agree without a message
  bool due(std::uint64_t step) const {
    if (every != 0 && step != 0 && step % every == 0) return true;
    return std::find(once.begin(), once.end(), step) != once.end();
  }
  /// Whether an update was due before @p step.
  bool due_before(std::uint64_t step) const {
    return (every != 0 && step > every) ||
           std::any_of(once.begin(), once.end(), [step](std::uint64_t at) { return at < step; });
  }
};

/// @brief The paper's schedule scaled to a training of another length; 100, 2,000 and every 10,000 are for 80,000
///        steps.
///
/// No update is before step 1, so short trainings learn at least once.
/// @param steps  of the training, at most 2^48
/// @source Faghri et al. 2020, appendix K, whose trainings on CIFAR-10 have 80,000 steps
inline update_schedule schedule_for(std::uint64_t steps) {
  constexpr std::uint64_t paper = 80000;
  auto const moment = [&](std::uint64_t at) {
    return std::max<std::uint64_t>(1, (at * steps + paper / 2) / paper);
  };
  update_schedule s;
  for (std::uint64_t& step : s.once) step = moment(step);
  s.every = moment(s.every);
  return s;
}

}  // namespace GLOBALQ_ABI::learn
