// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief advise: which operator, schedule and chunks to use on a machine for a model, and why not the others.
///
/// measure() runs on all workers; decide() is a function of numbers, so that tests give them; advise() does both and gives all
/// workers the answer of worker 0. The program globalq_advise and globalq_advise() of C call it.

#include <globalq/model/calibrate.hpp>
#include <globalq/transport/endpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace globalq_advisor {

namespace gq = globalq;

/// @brief A tensor of a model.
struct layer {
  std::string name;
  std::uint64_t length = 0;  ///< values
};

/// @brief What to give advice for.
struct request {
  std::vector<layer> layers;    ///< averaged in one call; one of them: a vector
  std::vector<float> gradient;  ///< of all layers in their order; empty: normal values
  double max_error = 0.1;       ///< see row::error
  double max_bound =
      std::numeric_limits<double>::infinity();  ///< on theta; operators without a bound are then left out
  std::vector<std::string> operators;           ///< names; empty: default_operators()
  std::optional<gq::model::network> network;    ///< one that is not here; none: measured
};

/// @brief What is compared where nothing else is asked for, from few bits to many, without float32.
std::span<std::string_view const> default_operators();

/// @brief What a machine and its network cost.
struct costs {
  gq::model::network net;
  gq::model::call_shape shape;
  std::vector<gq::model::operator_model> operators;  ///< float32 first
  bool measured = false;                             ///< the network was
};

/// @brief An operator on the schedule and with the chunks that suit it best.
struct row {
  enum class verdict : std::uint8_t { chosen, slower, inaccurate, unfit };
  std::string name, schedule;
  std::uint64_t chunk_values = 0;  ///< as in globalq::options
  std::uint64_t bytes_sent = 0;    ///< in a step, by the busiest worker
  double seconds = 0;              ///< of a step, predicted
  double speed_up = 0;             ///< over the fastest float32
  /// E||result - mean||^2 / ||mean||^2 for workers with equal gradients, every rounding on the way included.
  double error = 0;
  double bound = 0;  ///< theta, which bounds the error for all gradients; NaN: no bound
  verdict what = verdict::slower;
  std::string why;  ///< a sentence
};

/// @brief A call that was timed, the median of what the slowest worker took.
struct trial {
  std::string name, schedule;
  std::uint64_t chunk_values = 0;
  double seconds = 0;
};

/// @brief What to use.
struct advice {
  request asked;
  gq::model::network net;
  bool measured = false;
  std::vector<row> rows;  ///< the chosen one first, then usable ones from fast to slow, then the others
  row const& chosen() const { return rows.front(); }
  double float32_seconds = 0;
  std::uint64_t tried_values = 0;  ///< length of the trials
  std::vector<trial> trials;       ///< by which the choice was confirmed; none: the network is not here
  bool compresses() const { return chosen().name != "float32"; }
};

/// @brief error(operator, number among costs::operators, name of a schedule): see row::error.
using error_of = std::function<double(std::size_t, std::string_view)>;

/// @throws globalq::configuration_error for requests that make no sense
void check(request const& asked);

/// @brief Times the operators on all workers, and their network unless it is given.
/// @param names  of operators, equal on all workers
/// @throws globalq::configuration_error, globalq::transport_error
costs measure(gq::transport::endpoint& workers, std::span<std::string const> names, bool network);

/// @brief Encodes, adds and decodes values of the request for each pair of an operator and a schedule, on threads of this process.
error_of measured_errors(request const& asked, costs const& found);

/// @brief Predicts every operator on every schedule and chooses.
advice decide(request const& asked, costs const& found, error_of const& error);

/// @brief What to time before the choice is final: the chosen operator with several chunks, and float32.
/// Sets the length, for which float32 is predicted to take half a second at most.
void plan_trials(advice& a, costs const& found);

/// @brief Times the trials on all workers, in turn.
void run_trials(gq::transport::endpoint& workers, std::span<trial> all, std::uint64_t length);

/// @brief Takes the chunks that were fastest, and float32 if that was faster than the chosen operator.
void confirm(advice& a);

/// @brief The report, for people.
std::string as_text(advice const& a);
/// @brief The report as one JSON object.
std::string as_json(advice const& a);
/// @brief Three lines of C++, to be used after `#include <globalq/globalq.hpp>` and `<globalq/named/operators.hpp>`.
std::vector<std::string> cpp_lines(row const& use, bool layers);
/// @brief Three lines of Python.
std::vector<std::string> python_lines(row const& use, bool layers);

/// @brief What all workers get.
struct answer {
  std::string operator_name, schedule;
  std::uint64_t chunk_values = 0;
  double seconds = 0, float32_seconds = 0, error = 0;
  std::string text, json;
};

/// @brief Measures, decides and reports. All workers call it.
/// @param ask  ask(workers) returns the request; only worker 0 calls it
/// @throws globalq::configuration_error on every worker alike, also for what ask() throws; globalq::transport_error
answer advise(gq::transport::endpoint& workers, std::function<request(int)> const& ask);

/// @brief The same in one process: on threads that measure this machine, or alone if the request has a network.
/// @param workers  number of threads
answer advise_here(int workers, request const& asked);

}  // namespace globalq_advisor
