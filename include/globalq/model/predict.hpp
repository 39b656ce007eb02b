// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: predicts the time of a call on a network, and chooses an operator and a schedule, with a reason as
///        text.

#include "../plan/plan.hpp"
#include "../schedule/any.hpp"
#include "../transport/collectives.hpp"
#include "simulation.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

namespace GLOBALQ_ABI::model {

/// @brief An operator for the model: its facts and its costs.
struct operator_model {
  std::string name;
  globalq::detail::operator_facts facts;
  /// Costs for each way of adding codes, by globalq::method; empty if unknown.
  std::array<std::optional<work>, methods> costs;

  std::optional<work> const& costs_of(method how) const { return costs[static_cast<std::size_t>(how)]; }

  /// @param op  a quantizer, floats or any_quantizer
  template <class Operator>
  static operator_model of(std::string name, Operator const& op) {
    return {std::move(name), globalq::detail::facts_of(op), {}};
  }
  /// The same with given costs, for every way of adding.
  template <class Operator>
  static operator_model of(std::string name, Operator const& op, work const& costs) {
    costs.check();
    operator_model m = of(std::move(name), op);
    m.costs.fill(costs);
    return m;
  }
};

/// @brief The predicted time and plan of a call.
struct prediction {
  timing time;         ///< by parts
  globalq::plan plan;  ///< bytes, roundings, theta
  std::string schedule;
  std::uint64_t chunk_values = 0;  ///< as for globalq::options; 0: chosen by the library
  bool fits() const { return plan.fits; }
};

/// @brief The parameters of a prediction besides operator, schedule and length.
struct call_shape {
  dtype type = dtype::float32;
  std::uint64_t chunk_values = 0;                                  ///< as in globalq::options
  std::size_t chunk_bytes = globalq::detail::default_chunk_bytes;  ///< of the transport: OwnChunkBytes
};

namespace detail {

/// Exchanges the records of the handshake, as allreduce_mean does.
inline void exchange_records(recorder& t, bool quick) {
  constexpr std::size_t bytes = globalq::detail::record_bytes;
  auto const of = [](std::size_t records) {
    return std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes * records);
  };
  int const n = t.size();
  for (int reach = 1; reach < n; quick ? reach *= 2 : ++reach) {
    std::size_t const records = quick ? static_cast<std::size_t>(std::min(reach, n - reach)) : 1;
    auto incoming = t.recv_async((t.rank() - reach + n) % n, of(records));
    auto outgoing = t.send_async((t.rank() + reach) % n, of(records));
    t.wait(incoming);
    t.wait(outgoing);
  }
}

}  // namespace detail

/// @brief Predicts the time of a call of allreduce_mean by running the schedule's own code on a simulated network.
/// @param schedule  any except native, whose messages the library does not know
/// @returns a prediction; plan.fits is false, with the reason, if the policies do not fit together
/// @throws configuration_error if the operator's costs are unknown for the way in which this schedule adds codes
/// @complexity that of simulate()
template <class S>
prediction predict(network const& net, operator_model const& op, S const& schedule, std::uint64_t length,
                   call_shape const& shape = {}) {
  int const n = net.workers();
  net.check();
  prediction p;
  p.chunk_values = shape.chunk_values;
  globalq::detail::schedule_facts const facts = schedule.facts(n);
  p.schedule = facts.name;
  p.plan = globalq::detail::make_plan(op.facts, schedule, n, length, shape.type, shape.chunk_values,
                                      shape.chunk_bytes);
  if (!p.plan.fits) return p;
  std::optional<work> const& costs = op.costs_of(p.plan.reduce);
  if (!costs)
    throw configuration_error("globalq: model::predict: the costs of " + op.name + " with reduce " +
                              name_of(p.plan.reduce) + " on schedule " + facts.name +
                              " are unknown; measure them with model::calibrate_operator, or pass them");
  globalq::detail::resolution const r = globalq::detail::resolve(op.facts, facts, n);
  globalq::partition const cut(length, schedule.parts(n), globalq::detail::grain_of(op.facts),
                               globalq::detail::chunk_of(op.facts, r, shape.chunk_values, shape.chunk_bytes));
  globalq::detail::counting_codec const sizes = globalq::detail::counting(op.facts, r.size, shape.type);
  frame_pool frames = frame_pool::counting();
  p.time = simulate(net, [&](recorder& t) {
    t.work(part::norm, static_cast<double>(length) * costs->norm);
    detail::exchange_records(t, net.quick_exchange);
    globalq::detail::send_before(schedule, t, op.facts, length, shape.type, shape.chunk_bytes, frames);
    timed_codec codec(t, sizes, *costs);
    schedule(t, codec, cut, frames);
  });
  return p;
}

/// @brief Limits on the plan's bounds on the error of a result, and measured errors.
struct accuracy {
  double most_theta = std::numeric_limits<double>::infinity();       ///< on theta of the plan
  double most_iterations = std::numeric_limits<double>::infinity();  ///< on 1 + n theta of the plan
  /// Compares times of steps multiplied by 1 + n theta, with theta of measured().
  bool time_to_target = false;
  /// theta of an operator, by its number among the candidates, on a schedule, by its name: see measured_theta() in
  /// errors.hpp. The plan's theta is no replacement, because it can be thousands of times as large.
  std::function<double(std::size_t, std::string_view)> measured = nullptr;

  /// Whether any bound is set.
  bool asks() const { return std::isfinite(most_theta) || std::isfinite(most_iterations) || time_to_target; }
};

/// @brief The result of choose(), with its reason.
struct choice {
  bool compress = false;
  std::string name;                   ///< of the operator
  prediction best;                    ///< of the choice
  prediction plain;                   ///< of the fastest uncompressed call
  double iterations = 1;              ///< 1 + n theta of the choice, measured, if time_to_target is set
  double score = 0, plain_score = 0;  ///< seconds times iterations
  std::string reason;                 ///< as text, with numbers
};

/// @brief The combinations that choose() tries.
struct search {
  std::vector<std::string> schedules{"ring", "tree", "sra", "allgather"};  ///< names that schedule::any takes
  std::vector<std::uint64_t> chunks{0};                                    ///< as for globalq::options
  double least_gain = 1.05;  ///< compression must be this many times as fast to be chosen
};

namespace detail {

inline std::string time_text(double seconds) {
  char text[32];
  char const* unit = seconds < 1e-3 ? "us" : (seconds < 1 ? "ms" : "s");
  std::snprintf(text, sizeof text, "%.3g %s", seconds * (seconds < 1e-3 ? 1e6 : (seconds < 1 ? 1e3 : 1)),
                unit);
  return text;
}
inline std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}
inline std::string call_text(std::string const& name, prediction const& p) {
  return name + " on schedule " + p.schedule +
         (p.chunk_values == 0 ? std::string()
                              : " in chunks of " + std::to_string(p.chunk_values) + " values") +
         ", " + time_text(p.time.seconds);
}
/// The part that takes most of the time.
inline std::string most_of(timing const& t) {
  std::pair<double, char const*> const parts[] = {{t.norm, "norms"},
                                                  {t.encode, "encoding"},
                                                  {t.transfer, "transfer"},
                                                  {t.reduce, "adding"},
                                                  {t.decode, "decoding"}};
  auto const* most = &parts[0];
  for (auto const& p : parts)
    if (p.first > most->first) most = &p;
  if (t.seconds <= 0) return "nothing";
  return std::to_string(static_cast<int>(100 * most->first / t.seconds + 0.5)) + " % of it " + most->second;
}

}  // namespace detail

/// @brief Chooses operator, schedule and chunk size for a length, or no compression.
/// @param operators  candidates; they are compared with the fastest uncompressed one
/// @throws configuration_error if none is uncompressed, if a schedule's name is unknown, and if time_to_target is set
///         without measured errors
/// @complexity a simulation for each operator, schedule and chunk size
/// @determinism the same choice for the same arguments on one machine; let one of several machines choose and broadcast
///              (see bypass.hpp)
inline choice choose(network const& net, std::span<operator_model const> operators, std::uint64_t length,
                     accuracy const& wanted = {}, search const& among = {}, call_shape shape = {}) {
  choice c;
  std::optional<prediction> best, plain;
  std::string plain_name;
  int inaccurate = 0, unbounded = 0, unfit = 0;
  std::string refusal;
  if (wanted.time_to_target && !wanted.measured)
    throw configuration_error(
        "globalq: model::choose: time_to_target needs measured errors; set accuracy::measured, "
        "for example with model::measured_theta");
  auto const iterations_of = [&](std::size_t number, std::string const& schedule) {
    if (!wanted.time_to_target) return 1.0;
    double const theta = wanted.measured(number, schedule);
    if (!(theta >= 0 && std::isfinite(theta)))
      throw configuration_error("globalq: model::choose: the measured theta of " + operators[number].name +
                                " on schedule " + schedule + " is " + detail::short_text(theta) +
                                "; pass a finite number of 0 or more");
    return 1 + net.workers() * theta;
  };
  for (std::size_t number = 0; number < operators.size(); ++number)
    for (std::string const& name : among.schedules) {
      operator_model const& op = operators[number];
      std::optional<double> iterations;  // measured once for all chunks
      for (std::uint64_t const chunk : among.chunks) {
        shape.chunk_values = chunk;
        prediction p = predict(net, op, schedule::any(name), length, shape);
        if (!p.fits()) {
          ++unfit;
          if (refusal.empty()) refusal = p.plan.refusal;
          continue;
        }
        if (!op.facts.rounds()) {
          if (!plain || p.time.seconds < plain->time.seconds) {
            plain = std::move(p);
            plain_name = op.name;
          }
          continue;
        }
        if (wanted.asks() && std::isnan(p.plan.theta)) {
          ++unbounded;
          continue;
        }
        if (p.plan.theta > wanted.most_theta || p.plan.iterations_factor > wanted.most_iterations) {
          ++inaccurate;
          continue;
        }
        if (!iterations) iterations = iterations_of(number, name);
        if (!best || p.time.seconds * *iterations < c.score) {
          c.iterations = *iterations;
          c.score = p.time.seconds * *iterations;
          best = std::move(p);
          c.name = op.name;
        }
      }
    }
  if (!plain)
    throw configuration_error("globalq: model::choose: none of the " + std::to_string(operators.size()) +
                              " operators is uncompressed on any of the schedules; add "
                              "operator_model::of(\"float32\", uncompressed{}, ...)");
  c.plain = *plain;
  c.plain_score = plain->time.seconds;
  std::string const against = detail::call_text(plain_name, *plain);
  std::string const to_target = wanted.time_to_target ? " to the target" : "";
  if (best) {
    double const gain = c.plain_score / c.score;
    std::string const found =
        detail::call_text(c.name, *best) + (wanted.time_to_target
                                                ? " times " + detail::short_text(c.iterations) + " iterations"
                                                : std::string());
    c.compress = gain >= among.least_gain;
    if (c.compress) {
      c.reason = found + ": " + detail::short_text(gain) + " times as fast" + to_target + " as " + against;
      c.best = *best;
      return c;
    }
    c.reason = "do not compress: " + against + ", " + detail::most_of(plain->time) +
               "; the fastest operator, " + found + ", " + detail::most_of(best->time) + ", would be " +
               detail::short_text(gain) + " times as fast" + to_target;
  } else {
    c.reason = "do not compress: " + against + "; no operator is left:";
    if (inaccurate != 0)
      c.reason += " " + std::to_string(inaccurate) + " combinations exceed the bounds on the error;";
    if (unbounded != 0) c.reason += " " + std::to_string(unbounded) + " have no bound on their error;";
    if (unfit != 0)
      c.reason += " " + std::to_string(unfit) + " do not fit, the first because: " + refusal + ";";
    if (inaccurate + unbounded + unfit == 0) c.reason += " none was given;";
    c.reason.pop_back();
  }
  c.name = plain_name;
  c.iterations = 1;
  c.best = *plain;
  c.score = c.plain_score;
  return c;
}

}  // namespace GLOBALQ_ABI::model
