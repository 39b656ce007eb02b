// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: measures alpha and beta of a transport, and gamma and delta of operators; all workers get the same
///        numbers.
///
/// All workers measure at the same time, as in real calls: so shared links, memory and cores are shared here too.
/// Worker 0 computes the numbers and broadcasts them.

#include "../kernel/executor.hpp"
#include "../schedule/any.hpp"
#include "../transport/collectives.hpp"
#include "detail/prober.hpp"
#include "detail/stopwatch.hpp"
#include "measured.hpp"
#include "predict.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief Settings of a calibration.
struct calibration_settings {
  std::size_t message_bytes = 0;  ///< size of long messages; 0: as large as the chunks of a call
  int stream = 8;       ///< long messages of a stream, of which a few are in flight at a time; at least 3
  int repeats = 9;      ///< of each measurement, at least 1
  int most_crowd = 16;  ///< with more workers, messages from all to all are not measured
  std::chrono::duration<double> network_budget{4.0};  ///< no more repeats after this time; at least one
  std::uint64_t values = 1 << 20;                     ///< length of the vectors that time operators
  std::vector<std::string> schedules{"ring", "sra",
                                     "allgather"};  ///< schedules for which operators are timed
};

/// @brief The measured numbers of a transport.
struct calibration {
  network net;            ///< links that are all alike: what a worker receives while all send
  measured alpha;         ///< latency of a short message, in s
  measured long_latency;  ///< additional latency of a long message, in s
  measured beta;          ///< bandwidth of consecutive messages, in bytes/s
  measured overhead;      ///< a worker's own time for a message, in s
  measured crowded;       ///< share of beta if messages of several workers meet
  std::size_t chunk_bytes = globalq::detail::default_chunk_bytes;
  int repeats = 0;     ///< made within the budget
  double seconds = 0;  ///< duration of the calibration

  call_shape shape() const {
    call_shape s;
    s.chunk_bytes = chunk_bytes;
    return s;
  }
};

namespace detail {

/// Worker 0 broadcasts this to all.
struct told_network {
  measured alpha, long_latency, beta, overhead, crowded;
  double seconds;
  std::int64_t repeats;
};
static_assert(std::is_trivially_copyable_v<told_network>);

inline void check(calibration_settings const& s) {
  if (s.message_bytes != 0 && (s.message_bytes < 1024 || s.message_bytes > (std::size_t{1} << 30)))
    throw configuration_error("globalq: model::calibrate: message_bytes is " +
                              std::to_string(s.message_bytes) + "; give 0, or 1,024 to 2^30");
  if (s.stream < 3 || s.stream > 1000)
    throw configuration_error("globalq: model::calibrate: a stream of " + std::to_string(s.stream) +
                              " messages; give 3 to 1,000");
  if (s.repeats < 1 || s.repeats > 10'000)
    throw configuration_error("globalq: model::calibrate: repeats is " + std::to_string(s.repeats) +
                              "; give 1 to 10,000");
  if (!(s.network_budget.count() >= 0))
    throw configuration_error(
        "globalq: model::calibrate: network_budget is negative or not a number; give "
        "seconds, 0 or more");
  if (s.values < 4096 || s.values > (std::uint64_t{1} << 30))
    throw configuration_error("globalq: model::calibrate: values is " + std::to_string(s.values) +
                              "; give 4,096 to 2^30");
}

}  // namespace detail

/// @brief Measures the links of a transport while all workers use them.
///
/// Messages to the right neighbor: short ones of 64 bytes in sequence (alpha), and many at once (overhead of each);
/// long ones in streams of two lengths (beta, from the difference) and in sequence (additional latency); streams from
/// all to all (the share of beta if they meet). Each number is the median over the repeats of the slowest worker's
/// time.
/// @param t  endpoint of this worker, over host memory; all workers call with the same settings
/// @returns  the same numbers on every worker: those of worker 0
/// @throws   configuration_error for settings out of range; transport_error
/// @complexity  at most the budget, plus one repeat and a few messages before and after
template <Transport T>
calibration calibrate(T& t, calibration_settings const& settings = {}) {
  static_assert(!transport::OnStream<T>,
                "globalq: model::calibrate: a transport on a stream returns before messages have arrived; "
                "measure its host transport, or pass numbers to model::network");
  detail::check(settings);
  calibration c;
  c.chunk_bytes = transport::chunk_bytes_of(t);
  int const n = t.size();
  if (n == 1) {
    c.net = network::uniform(1, 0, std::numeric_limits<double>::infinity());
    return c;
  }
  auto const start = std::chrono::steady_clock::now();
  std::size_t const bytes = settings.message_bytes != 0 ? settings.message_bytes : c.chunk_bytes;
  bool const crowd = n > 2 && n <= settings.most_crowd;
  detail::prober<T> probe(t, bytes);
  constexpr int few = 2;  // messages in a short stream
  int const many = settings.stream, of_crowd = std::max(1, settings.stream / 2);
  constexpr std::size_t each = 5;
  // calls f() until the repeats or this share of the budget are used up
  auto const repeat = [&](double share, auto const& f) {
    for (int k = 0;; ++k) {
      f();
      bool const more =
          k + 1 < settings.repeats && detail::seconds_since(start) < share * settings.network_budget.count();
      if (!transport::broadcast_value(t, 0, more)) break;
    }
  };
  std::vector<double> times, crowds;  // of each repeat
  transport::keeping(t, probe.memory(), [&] {
    probe.burst(bytes, few, 1);
    repeat(crowd ? 0.7 : 1.0, [&] {
      times.push_back(probe.exchange(probe.short_bytes, probe.turns));
      times.push_back(probe.burst(probe.short_bytes, probe.flood, 1));
      times.push_back(probe.exchange(bytes, 2));
      times.push_back(probe.stream(bytes, few));
      times.push_back(probe.stream(bytes, many));
    });
    // last, because TCP loses packets where streams meet, and stays slow for a while
    if (crowd) repeat(1, [&] { crowds.push_back(probe.burst(bytes, of_crowd, n - 1)); });
  });
  std::vector<double> const all = detail::slowest(t, times);
  std::vector<double> const met = crowd ? detail::slowest(t, crowds) : std::vector<double>();
  detail::told_network told{};
  if (t.rank() == 0) {
    std::size_t const repeats = all.size() / each;
    auto const over_repeats = [&](auto const& f) {
      std::vector<double> v;
      for (std::size_t k = 0; k < repeats; ++k) v.push_back(f(&all[k * each]));
      return detail::quartiles(v);
    };
    double const m = static_cast<double>(bytes);
    told.overhead = over_repeats(
        [&](double const* row) { return std::max(0.0, (row[1] - row[0]) / (2 * (probe.flood - 1))); });
    double const handling = 2 * told.overhead.value;
    told.alpha = over_repeats([&](double const* row) { return std::max(1e-9, row[0] - handling); });
    // with noise the long stream may be the faster one; then use its whole time, latency included
    told.beta = over_repeats([&](double const* row) {
      double const more = row[4] - row[3];
      return more > row[4] / 4 ? (many - few) * m / more : many * m / row[4];
    });
    double const one = m / told.beta.value;
    told.long_latency = over_repeats(
        [&](double const* row) { return std::max(0.0, row[2] - handling - told.alpha.value - one); });
    // the first message of the crowd has the link alone
    std::vector<double> left;
    for (double const seconds : met) {
      double const rest = (of_crowd * (n - 1) - 1) * one;
      double const took = seconds - told.alpha.value - told.long_latency.value - one;
      left.push_back(took <= rest ? 1.0 : rest / took);
    }
    told.crowded = crowd ? detail::quartiles(left) : measured{1, 1, 1};
    told.repeats = static_cast<std::int64_t>(repeats);
    told.seconds = detail::seconds_since(start);
  }
  told = transport::broadcast_value(t, 0, told);
  c.alpha = told.alpha;
  c.beta = told.beta;
  c.overhead = told.overhead;
  c.crowded = told.crowded;
  c.long_latency = told.long_latency;
  c.repeats = static_cast<int>(told.repeats);
  c.seconds = told.seconds;
  c.net = network::uniform(n, c.alpha.value, c.beta.value);
  c.net.overhead = c.overhead.value;
  c.net.crowded = c.crowded.value;
  c.net.long_latency = c.long_latency.value;
  c.net.long_from = std::min<std::uint64_t>(c.net.long_from, bytes);
  c.net.quick_exchange = transport::OwnAllgather<T>;
  return c;
}

/// @brief Measures the costs of an operator on the workers' machines, for each way in which the schedules add its
///        codes.
///
/// All workers measure at the same time, each with a vector of settings.values; the result is the slowest worker's
/// median.
/// @param t      endpoint of this worker; all workers call with the same operator and settings
/// @param op     a quantizer, floats or any_quantizer
/// @param space  execution space of the kernels, as for allreduce_mean
/// @returns  the same numbers on every worker
/// @throws   configuration_error for settings out of range; transport_error
/// @pre Kokkos is initialized
template <Transport T, class Operator, class Space = Kokkos::DefaultHostExecutionSpace>
operator_model calibrate_operator(T& t, std::string name, Operator const& op,
                                  calibration_settings const& settings = {}, Space const& space = Space()) {
  detail::check(settings);
  float_environment const exact;
  operator_model m = operator_model::of(std::move(name), op);
  std::size_t const chunk_bytes = transport::chunk_bytes_of(t);
  kernel::host_executor const on(space);
  for (std::string const& schedule : settings.schedules) {
    auto const r = globalq::detail::resolve(m.facts, globalq::schedule::any(schedule).facts(2), 2);
    std::optional<work>& costs = m.costs[static_cast<std::size_t>(r.how)];
    if (!r.fits() || costs) continue;
    detail::stopwatch watch(op, m.facts, r, on, settings.values, chunk_bytes);
    constexpr std::size_t phases = detail::stopwatch::phases;
    watch.run();
    std::vector<double> times;
    transport::barrier(t);
    for (int k = 0; k < settings.repeats; ++k)
      for (double const s : watch.run()) times.push_back(s);
    std::array<double, phases> medians{};
    for (std::size_t i = 0; i < phases; ++i) {
      std::vector<double> column;
      for (std::size_t k = i; k < times.size(); k += phases) column.push_back(times[k]);
      medians[i] = detail::quartiles(column).value;
    }
    std::vector<double> const most = detail::slowest(t, {medians.begin(), medians.end()});
    std::copy(most.begin(), most.end(), medians.begin());
    costs = transport::broadcast_value(t, 0, watch.costs(medians));
  }
  return m;
}

}  // namespace GLOBALQ_ABI::model
