// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: one worker's part of a training, and of measurements of time and of errors.

#include "exchange.hpp"
#include "model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace evidence {

/// @brief The evaluation of the model after a step.
struct point {
  std::uint64_t step = 0;  ///< 1 is the first
  double value = 0;        ///< of model::evaluate
};

/// @brief A training with one method and one seed; equal on all workers except for the time.
struct training {
  std::vector<point> curve;        ///< the last one is the result
  std::uint64_t values = 0;        ///< of the gradient
  std::uint64_t bytes_a_step = 0;  ///< of the worker that sends most
  bool identical = false;          ///< all workers ended with the same parameters, bit for bit
  double seconds = 0, best = 0;    ///< best: of model::best()
};

/// @brief Trains one model; all workers must call it with equal arguments.
/// @param every  steps between evaluations
/// @determinism  a pure function of its arguments and the number of workers, except for the time
training train(workers& all, model_kind const& what, method const& how, replica_setting with,
               std::uint64_t every);

/// @brief Times of one method, one number for each step; equal on all workers.
struct timing {
  std::string refusal;  ///< why the method could not run; then the other members are empty
  std::uint64_t values = 0, bytes_a_step = 0;
  std::vector<double> step;  ///< whole steps: gradient, exchange, update and observe(); of the slowest worker
  std::vector<double> exchange;  ///< the exchange, after a barrier; of the slowest worker
  std::vector<double> compute;   ///< processor time outside the exchange; mean of the workers
  std::vector<double> method;  ///< processor time in the exchange, without the transport; mean of the workers
};

/// @brief Measures methods in turn, so that other load affects all of them; the first rounds are a warm-up and not
/// kept.
///
/// After the exchange the optimizer takes its step with a gradient of zeros, so that all methods measure the initial
/// model.
std::vector<timing> measure(workers& all, model_kind const& what, std::vector<method> const& methods,
                            replica_setting with, std::uint64_t rounds, std::uint64_t warm_up);

/// @brief How to measure errors.
struct error_setting {
  std::uint64_t from = 0;  ///< steps of training with exact means before the first round
  bool draw = true;        ///< new vectors in each round; false: the gradients of one step in all rounds
  std::uint64_t least_rounds = 8, most_rounds = 400;
  double spread = 0.02;  ///< a method is measured until its error has this relative standard error, or less
};

/// @brief The error of the means of one method: averages over rounds, each with other random bits. Valid on rank
/// 0, except for the refusal.
struct error {
  std::string refusal;  ///< why the method could not run; then the other members are empty
  std::uint64_t values = 0, rounds = 0;
  std::uint64_t bytes = 0;  ///< of the worker that sends most, in a round in which no levels are learned
  double of_mean = 0;       ///< ||result - mean||^2 / ||mean||^2
  double of_vectors = 0;    ///< ||result - mean||^2 / mean over the workers of ||x||^2
  double spread = 0;        ///< relative standard error of of_mean
};

/// @brief Measures all methods on the same vectors. Methods that learn levels learn them in the first round, and again
/// in every tenth.
/// @determinism  a pure function of its arguments and the number of workers
std::vector<error> compare(workers& all, model_kind const& what, std::vector<method> const& methods,
                           replica_setting with, error_setting const& how);

}  // namespace evidence
