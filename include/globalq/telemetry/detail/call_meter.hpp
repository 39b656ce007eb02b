// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: measures the calls of an operator: clocks, counters, and regions of Kokkos Tools.

#include "../../transport/concept.hpp"
#include "../telemetry.hpp"

#include <Kokkos_Core.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// @brief Tracks the phase of a call, for telemetry and for profilers.
///
/// Regions are named "globalq::allreduce_mean" (the operation) and, inside it, "globalq::encode" (the phase).
class call_meter {
  using clock = std::chrono::steady_clock;

 public:
  /// @param to      receives reports; null: none, only profilers see regions
  /// @param settle  waits until all enqueued work has run; empty if nothing is enqueued
  explicit call_meter(telemetry* to = nullptr, std::function<void()> settle = {})
      : to_(to), settle_(std::move(settle)) {}

  /// Whether a call is in progress that telemetry or a profiler observes.
  bool watching() const { return watching_; }
  bool wants_errors() const { return watching_ && timed_ && to_->what().errors; }
  /// Whether a call is in progress whose phases wait for enqueued work.
  bool waits() const { return watching_ && timed_ && settle_; }
  /// The report of the call in progress.
  call_report& report() { return report_; }
  /// Reports that the call in progress has no finite result.
  /// @param rank  the first that passed NaN or infinity; -1: the mean overflowed
  void not_finite(int rank) {
    report_.non_finite = 1;
    report_.non_finite_rank = rank;
  }

  /// @brief A call, until it goes out of scope.
  template <class T>
  class observed {
   public:
    /// @param meter  null: nothing observes the call
    observed(call_meter* meter, T const& workers)
        : meter_(meter),
          workers_(workers),
          sent_(meter == nullptr ? 0 : bytes_sent_by(workers)),
          exceptions_(meter == nullptr ? 0 : std::uncaught_exceptions()) {}
    observed(observed const&) = delete;
    observed& operator=(observed const&) = delete;
    ~observed() {
      if (meter_ != nullptr)
        meter_->end(bytes_sent_by(workers_) - sent_, std::uncaught_exceptions() > exceptions_);
    }

   private:
    call_meter* meter_;
    T const& workers_;
    std::uint64_t sent_;
    int exceptions_;
  };
  /// @param plain  whether the operator is float32
  template <class T>
  [[nodiscard]] observed<T> watch(T const& workers, char const* operation, std::uint64_t step,
                                  std::uint64_t values, bool plain) {
    bool const profiled = Kokkos::Tools::profileLibraryLoaded();
    if (to_ == nullptr && !profiled) return {nullptr, workers};
    report_ = {};
    report_.operation = operation;
    report_.step = step;
    report_.calls = 1;
    report_.values = values;
    report_.uncompressed = plain ? 1 : 0;
    timed_ = to_ != nullptr;
    profiled_ = profiled;
    if (profiled_) Kokkos::Tools::pushRegion(std::string("globalq::") + operation);
    watching_ = true;
    wait();
    began_ = since_ = clock::now();
    return {this, workers};
  }

  /// @brief A phase, until it goes out of scope; the enclosing phase pauses.
  class scope {
   public:
    scope(call_meter& meter, phase p) : meter_(meter.watching_ ? &meter : nullptr) {
      if (meter_ == nullptr) return;
      outer_ = meter_->turn_to(static_cast<std::size_t>(p));
      if (meter_->profiled_)
        Kokkos::Tools::pushRegion(std::string("globalq::") + phase_names[static_cast<std::size_t>(p)]);
    }
    scope(scope const&) = delete;
    scope& operator=(scope const&) = delete;
    ~scope() {
      if (meter_ == nullptr) return;
      meter_->turn_to(outer_);
      if (meter_->profiled_) Kokkos::Tools::popRegion();
    }

   private:
    call_meter* meter_;
    std::size_t outer_ = phases;
  };
  [[nodiscard]] scope enter(phase p) { return {*this, p}; }

 private:
  template <class T>
  static std::uint64_t bytes_sent_by([[maybe_unused]] T const& workers) {
    if constexpr (transport::OwnBytesSent<T>)
      return workers.bytes_sent();
    else
      return 0;
  }

  /// Adds the time until now to the current phase, starts phase @p next (phases: none), and returns the one before.
  std::size_t turn_to(std::size_t next) {
    if (timed_) {
      wait();
      clock::time_point const now = clock::now();
      if (phase_ < phases) report_.phase_seconds[phase_] += seconds(now - since_);
      since_ = now;
    }
    return std::exchange(phase_, next);
  }

  void end(std::uint64_t bytes, bool failed) {
    wait();
    report_.seconds = seconds(clock::now() - began_);
    report_.bytes_sent = bytes;
    if (failed) report_.failed = 1;
    watching_ = false;
    phase_ = phases;
    if (profiled_) Kokkos::Tools::popRegion();
    if (timed_) to_->record(report_);
  }

  /// Ignores errors: the call itself waits later and throws them.
  void wait() const {
    if (!timed_ || !settle_) return;
    try {
      settle_();
    } catch (std::exception const&) {
    }
  }

  static double seconds(clock::duration d) { return std::chrono::duration<double>(d).count(); }

  telemetry* to_;
  std::function<void()> settle_;
  call_report report_;
  clock::time_point began_, since_;
  std::size_t phase_ = phases;
  bool watching_ = false, timed_ = false, profiled_ = false;
};

}  // namespace GLOBALQ_ABI::detail
