// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: one worker's part of a training, and of a measurement of time.

#include "exchange.hpp"
#include "model.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace evidence {

/// @brief Is said to the user by rank 0, when something has ended.
using listener = std::function<void(std::string const&)>;

/// @brief What the model came to after a step.
struct point {
  std::uint64_t step = 0;  ///< 1 is the first
  double value = 0;        ///< of model::evaluate
};

/// @brief A training with one method and one seed, the same at every worker, but for its time.
struct training {
  std::vector<point> curve;        ///< the last one is the result
  std::uint64_t values = 0;        ///< of the gradient
  std::uint64_t bytes_a_step = 0;  ///< sent by the busiest worker
  bool identical = false;          ///< all workers ended with the same parameters, bit for bit
  double seconds = 0;
};

/// @brief Trains one model; all workers call it alike.
/// @param every  steps between evaluations
/// @determinism  a pure function of its arguments and the number of workers, except for the time
training train(workers& all, model_kind const& what, method const& how, replica_setting with,
               std::uint64_t every);

/// @brief Times of one method, a number for each step, the same at every worker.
struct timing {
  std::string refusal;  ///< why the method could not run; then there is nothing else
  std::uint64_t values = 0, bytes_a_step = 0;
  std::vector<double>
      step;  ///< whole steps: gradient, exchange, update and what it tells the exchange; the slowest worker
  std::vector<double> exchange;  ///< the exchange alone, from a barrier on; the slowest worker
  std::vector<double> compute;   ///< what a thread computed beside the exchange; mean of the workers
  std::vector<double>
      method;  ///< what a thread computed in the exchange, but not in the transport; mean of the workers
};

/// @brief Measures methods in turn, so that all meet the same neighbors; the first rounds warm up and are not kept.
///
/// The optimizer's step is taken along a gradient of zeros, after the exchange, so that all methods meet the model as it
/// was at the start.
std::vector<timing> measure(workers& all, model_kind const& what, std::vector<method> const& methods,
                            replica_setting with, std::uint64_t rounds, std::uint64_t warm_up);

}  // namespace evidence
