// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: reports of calls: bytes sent, time by phase, and the error of rounding.

#include "../core/detail/abi.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

namespace GLOBALQ_ABI {

/// The phases of a call, by which a worker's time is divided.
enum class phase : std::uint8_t {
  norm,  ///< one pass over own values: largest magnitudes and norms, and on a stream the frames encoded in that pass
  opening,  ///< the handshake before any payload, including the wait for late workers
  encode,   ///< own values to frames
  reduce,  ///< frames that arrived, added to each other or to own values: decoded, added and encoded again in one pass
  decode,   ///< the last frames to the result; over allgather it includes adding
  transfer  ///< messages and the rest of the schedule, including waits for other workers
};
/// The number of phases.
inline constexpr std::size_t phases = 6;
/// Names of the phases, for reports: "norm", "opening", ...
inline constexpr std::array<char const*, phases> phase_names{"norm",   "opening", "encode",
                                                             "reduce", "decode",  "transfer"};

/// @brief One call of this worker, or the sum of several.
struct call_report {
  std::string_view operation;  ///< of the last call
  std::uint64_t step = 0;      ///< of the last call; 0 if only a stream knows it
  std::uint64_t calls = 0;
  std::uint64_t failed = 0;  ///< calls that threw
  /// Calls whose result is NaN, or that threw non_finite_error: a worker passed NaN or infinity, or the mean exceeds
  /// the range of its type.
  std::uint64_t non_finite = 0;
  int non_finite_rank =
      -1;  ///< of the last such call: the first rank that passed one; -1: the mean overflowed
  std::uint64_t uncompressed = 0;  ///< calls in float32: chosen, bypassed, forced, or in a warm-up
  std::uint64_t values = 0;        ///< lengths of the vectors
  std::uint64_t bytes_sent = 0;    ///< passed to the transport; 0 for compressors if it does not count
  double seconds = 0;              ///< duration of whole calls
  std::array<double, phases> phase_seconds{};

  /// @name Errors of own values, if they are measured (telemetry_options::errors); else 0. Without float32 calls
  /// @{
  std::uint64_t rounded = 0;  ///< values that were measured
  std::uint64_t zeros = 0;    ///< of these, values that are zero after rounding
  double energy = 0;          ///< the sum of squares of own values; infinite for values of 2^511 and more
  double error_energy = 0;    ///< the sum of squares of the rounding errors
  /// @}

  double in(phase p) const { return phase_seconds[static_cast<std::size_t>(p)]; }
  /// Share of own values that are zero after rounding; NaN if not measured.
  double zero_fraction() const {
    return rounded == 0 ? unknown : static_cast<double>(zeros) / static_cast<double>(rounded);
  }
  /// ||Q(x) - x||^2 / ||x||^2 of own values; 0 if all are zero; NaN if not measured, or if squares exceed the range of
  /// float64.
  double normalized_error() const {
    if (rounded == 0 || energy > std::numeric_limits<double>::max()) return unknown;
    if (energy == 0) return zeros == rounded ? 0.0 : unknown;
    return error_energy / energy;
  }

  call_report& operator+=(call_report const& next) {
    operation = next.operation;
    step = next.step;
    calls += next.calls;
    failed += next.failed;
    non_finite += next.non_finite;
    if (next.non_finite != 0) non_finite_rank = next.non_finite_rank;
    uncompressed += next.uncompressed;
    values += next.values;
    bytes_sent += next.bytes_sent;
    seconds += next.seconds;
    for (std::size_t p = 0; p < phases; ++p) phase_seconds[p] += next.phase_seconds[p];
    rounded += next.rounded;
    zeros += next.zeros;
    energy += next.energy;
    error_energy += next.error_energy;
    return *this;
  }

 private:
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
};

/// Measurements of telemetry besides times and bytes.
struct telemetry_options {
  /// Encodes and decodes own values once more in each call, outside of all phases, to count zeros and measure errors.
  /// This takes the memory of one vector, and on a stream a wait in each call.
  bool errors = false;
};

/// @brief Collects the reports of calls; several operators may share one.
///
/// @code
/// gq::telemetry seen;
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42, .telemetry = &seen}};
/// mean(gradient, step);
/// std::printf("%.1f ms, of which %.1f ms on messages\n", 1e3 * seen.last().seconds,
///             1e3 * seen.last().in(gq::phase::transfer));
/// @endcode
/// Each group of overlapped_mean is a call of its own. On a stream, while telemetry is on, the host waits for the
/// stream at the start and the end of every phase, so calls overlap with nothing; nothing is reported while a graph is
/// captured. Telemetry does not change results. Without it, a call only checks once whether a profiler is loaded, and
/// reads no clock.
/// @note All functions may be called by any thread at any time; a call is reported when it has ended.
class telemetry {
 public:
  explicit telemetry(telemetry_options const& what = {}) : what_(what) {}
  telemetry(telemetry const&) = delete;
  telemetry& operator=(telemetry const&) = delete;

  /// The report of the last call; a group of vectors is one call.
  call_report last() const {
    std::scoped_lock const lock(mutex_);
    return last_;
  }
  /// The sum of all calls since construction, or since take().
  call_report total() const {
    std::scoped_lock const lock(mutex_);
    return total_;
  }
  /// Returns the sum and starts a new one.
  call_report take() {
    std::scoped_lock const lock(mutex_);
    return std::exchange(total_, {});
  }

  telemetry_options const& what() const { return what_; }

  /// Adds a report: for transports, operators and compressors of your own.
  void record(call_report const& report) {
    std::scoped_lock const lock(mutex_);
    last_ = report;
    total_ += report;
  }

 private:
  telemetry_options what_;
  mutable std::mutex mutex_;
  call_report last_, total_;
};

}  // namespace GLOBALQ_ABI
