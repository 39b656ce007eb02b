// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: what calls sent, how long they took and on what, and what rounding did to the values.

#include "../core/detail/abi.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

namespace GLOBALQ_ABI {

/// What a worker spends the time of a call on.
enum class phase : std::uint8_t {
  norm,  ///< one pass over the own values: largest magnitudes and norms, and on a stream frames that are made in it
  opening,  ///< what workers tell each other before any payload; waiting for those that come late is in it
  encode,   ///< own values to frames
  reduce,  ///< frames that arrived, added to each other or to own values: decoded, added and encoded again in one pass
  decode,   ///< the last frames to the result; over allgather with the adding
  transfer  ///< messages: the rest of the schedule, waiting for other workers included
};
/// How many there are.
inline constexpr std::size_t phases = 6;
/// Names of the phases, for reports: "norm", "opening", ...
inline constexpr std::array<char const*, phases> phase_names{"norm",   "opening", "encode",
                                                             "reduce", "decode",  "transfer"};

/// @brief One call of this worker, or the sum of several.
struct call_report {
  std::string_view operation;  ///< of the last call
  std::uint64_t step = 0;      ///< of the last call; 0 where only a stream knows it
  std::uint64_t calls = 0;
  std::uint64_t failed = 0;  ///< calls that threw
  /// Calls whose result is NaN, or that threw non_finite_error: a worker brought NaN or infinity, or the mean is beyond the
  /// range of its type.
  std::uint64_t non_finite = 0;
  int non_finite_rank =
      -1;  ///< of the last such call: the first rank that brought one; -1: the mean overflowed
  std::uint64_t uncompressed =
      0;                     ///< calls whose operator was float32: chosen, bypassed, forced, or in a warm-up
  std::uint64_t values = 0;  ///< lengths of the vectors
  std::uint64_t bytes_sent = 0;  ///< handed to the transport; of compressors 0 where that does not count
  double seconds = 0;            ///< of whole calls
  std::array<double, phases> phase_seconds{};

  /// @name What became of own values, where it is measured (telemetry_options::errors); else 0. Not of float32 calls
  /// @{
  std::uint64_t rounded = 0;  ///< values that were looked at
  std::uint64_t zeros = 0;    ///< of them, those that were rounded to zero, or were zero
  double energy = 0;          ///< the sum of squares of own values; infinite for values of 2^511 and more
  double error_energy = 0;    ///< the sum of squares of what rounding changed
  /// @}

  double in(phase p) const { return phase_seconds[static_cast<std::size_t>(p)]; }
  /// Share of own values that are zero once rounded; NaN where it was not measured.
  double zero_fraction() const {
    return rounded == 0 ? unknown : static_cast<double>(zeros) / static_cast<double>(rounded);
  }
  /// ||Q(x) - x||^2 / ||x||^2 of own values; 0 where all are zero, NaN where it was not measured, or where squares are beyond
  /// the range of float64.
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

/// What telemetry looks at besides times and bytes.
struct telemetry_options {
  /// Own values are encoded and decoded once more in each call, to tell zeros and errors, outside of all phases. This needs
  /// the memory of one vector, and on a stream a wait for it in each call.
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
/// Each bucket of overlapped_mean is a call of its own. On a stream, the host waits for the stream at the start and the end of every phase while telemetry
/// is on, so calls overlap with nothing; while a graph is captured, nothing is reported.
/// Results of calls do not depend on it. Without one, a call asks once whether a profiler is there and reads no clock.
/// @note All functions may be called by any thread at any time; a call is reported when it has ended.
class telemetry {
 public:
  explicit telemetry(telemetry_options const& what = {}) : what_(what) {}
  telemetry(telemetry const&) = delete;
  telemetry& operator=(telemetry const&) = delete;

  /// The last call; that of a group of vectors is one.
  call_report last() const {
    std::scoped_lock const lock(mutex_);
    return last_;
  }
  /// The sum of all calls since the object was made, or since take().
  call_report total() const {
    std::scoped_lock const lock(mutex_);
    return total_;
  }
  /// The same, and the next sum begins.
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
