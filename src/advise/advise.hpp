// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief advise: recommends an operator, a schedule and a chunk size for a model on a machine, with reasons.
///
/// measure() runs on all workers. decide() is a pure function of numbers, so that tests can supply them. advise() runs both and
/// broadcasts the answer of worker 0. The program globalq_advise and the C function globalq_advise() call it.

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

/// @brief The input of advise().
struct request {
  std::vector<layer> layers;  ///< averaged in one call; one of them: a vector
  /// All layers of a worker in order, then those of further workers, if any; empty: use synthetic values, see measure.cpp
  std::vector<float> gradient;
  double max_error = 0.05;  ///< see row::error
  double max_bound = std::numeric_limits<
      double>::infinity();                    ///< on theta; if finite, operators without a bound are excluded
  std::vector<std::string> operators;         ///< names; empty: default_operators()
  std::optional<gq::model::network> network;  ///< to predict for; empty: measure the network of the workers
};

/// @brief The operators compared by default, from few bits to many; float32 is always added.
std::span<std::string_view const> default_operators();

/// @brief Measured costs of a machine and its network.
struct costs {
  gq::model::network net;
  gq::model::call_shape shape;
  std::vector<gq::model::operator_model> operators;  ///< float32 first
  bool measured = false;                             ///< whether the network was measured
};

/// @brief An operator with its best schedule and chunk size.
struct row {
  enum class verdict : std::uint8_t { chosen, slower, inaccurate, unfit };
  std::string name, schedule;
  std::uint64_t chunk_values = 0;  ///< as in globalq::options
  std::uint64_t bytes_sent = 0;    ///< per step, by the busiest worker
  double seconds = 0;              ///< per step, predicted
  double speed_up = 0;             ///< over the fastest float32
  /// n ||result - mean||^2 / sum_i ||x_i||^2 of pieces of layers, on average, including every rounding.
  double error = 0;
  double bound = 0;  ///< theta, which bounds the error of the whole gradient, whatever it is; NaN: no bound
  verdict what = verdict::slower;
  std::string why;  ///< a sentence
};

/// @brief A timed call: the median of the slowest worker's times.
struct trial {
  std::string name, schedule;
  std::uint64_t chunk_values = 0;
  double seconds = 0;
};

/// @brief The recommendation.
struct advice {
  request asked;
  gq::model::network net;
  bool measured = false;
  std::vector<row> rows;  ///< the chosen one first, then usable ones from fast to slow, then the others
  row const& chosen() const { return rows.front(); }
  double float32_seconds = 0;
  std::uint64_t tried_values = 0;  ///< length of the trials
  std::vector<trial> trials;       ///< timed calls that confirmed the choice; empty if the network was given
  bool compresses() const { return chosen().name != "float32"; }
};

/// @brief error(operator, number among costs::operators, name of a schedule): see row::error.
using error_of = std::function<double(std::size_t, std::string_view)>;

/// @throws globalq::configuration_error for an invalid request
void check(request const& asked);

/// @brief A network with equal links. Validates the number of workers as check() does, before it allocates.
/// @throws globalq::configuration_error
gq::model::network network_of(int workers, double latency, double bandwidth);

/// @brief Times the operators on all workers, and the network if @p network is true.
/// @param names  of operators, equal on all workers
/// @throws globalq::configuration_error, globalq::transport_error
costs measure(gq::transport::endpoint& workers, std::span<std::string const> names, bool network);

/// @brief Measures the error of an operator on a schedule by averaging values of the request over threads of this process.
error_of measured_errors(request const& asked, costs const& found);

/// @brief Predicts every operator on every schedule and chooses.
advice decide(request const& asked, costs const& found, error_of const& error);

/// @brief Plans the timed calls that confirm the choice: the chosen operator with several chunk sizes, and float32.
/// Their length is limited so that float32 is predicted to take at most half a second.
void plan_trials(advice& a, costs const& found);

/// @brief Times the trials on all workers, in turn.
void run_trials(gq::transport::endpoint& workers, std::span<trial> all, std::uint64_t length);

/// @brief Selects the fastest chunk size, or float32 if it was faster than the chosen operator.
void confirm(advice& a);

/// @brief The report as text.
std::string as_text(advice const& a);
/// @brief The report as one JSON object.
std::string as_json(advice const& a);
/// @brief Three lines of C++ that use the choice, after `#include <globalq/globalq.hpp>` and `<globalq/named/operators.hpp>`.
std::vector<std::string> cpp_lines(row const& use, bool layers);
/// @brief Three lines of Python.
std::vector<std::string> python_lines(row const& use, bool layers);

/// @brief The advice, equal on all workers.
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

/// @brief Runs advise() in one process: on threads, or on one thread if the request has a network.
/// @param workers  number of threads
answer advise_here(int workers, request const& asked);

}  // namespace globalq_advisor
