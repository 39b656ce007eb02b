// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: times of steps whose computing is replayed as a sleep.
///
/// The models of the papers do not fit a small machine. A speed-up does not depend on the length of a step but on c, the
/// baseline's ratio of communication to computing. Here bytes, operators and exchanges are real, and computing takes
/// (exchange of the baseline) / c.

#include "run.hpp"

#include <cstdint>
#include <vector>

namespace evidence {

/// @brief What to replay; equal on all workers.
struct replay_setting {
  std::vector<double> ratios;  ///< c, positive
  std::uint64_t layers = 16;   ///< of equal length, for steps that compute and send at once
  std::uint64_t groups = 8;    ///< of layers that travel in one call, at most
  int steps = 2;               ///< at once: steps of a round, of which it has the mean
};

/// @brief Steps of one method with one ratio: seconds of the slowest worker, one number for each round.
struct replayed_steps {
  double ratio = 0;
  double computing = 0;         ///< of a step; a third of it in the forward pass
  std::vector<double> in_turn;  ///< computing, then the exchange
  /// Layers are sent as the backward pass computes them, and the next forward pass waits for one after the other. Empty
  /// if the method has no operator for layers.
  std::vector<double> at_once;
};

/// @brief One method: its exchange alone, and its steps.
struct replayed {
  timing alone;  ///< if it has a refusal, there are no steps
  std::vector<replayed_steps> steps;
};

/// @brief Times all methods one after the other, in each round. The first method is the baseline.
/// @param with  replica_setting::values is the length of the vector
/// @throws globalq::configuration_error if the baseline cannot run
std::vector<replayed> replay(workers& all, std::vector<method> const& methods, replica_setting const& with,
                             replay_setting const& how, std::uint64_t rounds, std::uint64_t warm_up);

/// @brief Processor time in seconds of the processes of all workers, since they started; to tell it from that of other processes.
double processor_seconds(workers& all);

}  // namespace evidence
