// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: a kernel and its floor, timed in turn. Needs Google Benchmark.

#include "../core/detail/abi.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace GLOBALQ_ABI::bench {

/// For calls that have completed when they return.
struct nothing_pending {
  /// Returns at once.
  void operator()() const {}
};

/// Seconds of @p calls calls.
/// @param settle  waits for work that the calls enqueued
template <class F, class Settle = nothing_pending>
double seconds_of(F&& f, std::int64_t calls, Settle const& settle = {}) {
  auto const start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) f();
  settle();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Number of calls that takes long enough for the clock and interrupts not to matter.
/// @param timed     timed(calls) returns seconds
/// @param shortest  seconds
template <class Timed>
std::int64_t calls_of_a_sample(Timed&& timed, double shortest) {
  std::int64_t calls = 1;
  timed(calls);  // touches memory, wakes threads
  while (timed(calls) < shortest) calls *= 2;
  return calls;
}

/// The sample below which a share of all samples lies.
/// @param share  0.5 for the median
inline double quantile(std::vector<double> samples, double share) {
  auto const at =
      samples.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

/// The work of one call.
struct amount {
  std::uint64_t values;  ///< of a vector
  std::uint64_t bytes;   ///< counted by `bytes_per_second`
};

/// @brief Times kernel, floor, kernel, floor, ... and reports medians, so that other load, clock rate and caches affect both
/// equally.
///
/// Counters: `floor_ratio` (time of the floor / time of the kernel, 1 is perfect), `spread` (interquartile range of this ratio over
/// single rounds, relative to the ratio), `ns_per_value`, `floor_ns_per_value` and `bytes_per_second` of the kernel. Benchmarks
/// count calls of the kernel, with manual time.
/// @param kernel    kernel(calls) runs that many calls and returns their seconds; so does @p floor
/// @param shortest  minimum seconds of a sample
/// @returns floor_ratio
template <class Kernel, class Floor>
double time_in_turn(benchmark::State& state, amount const& each, Kernel&& kernel, Floor&& floor,
                    double shortest = 200e-6) {
  constexpr std::size_t fewest = 9;
  std::int64_t const kernel_calls = calls_of_a_sample(kernel, shortest),
                     floor_calls = calls_of_a_sample(floor, shortest);
  std::vector<double> of_kernel, of_floor, ratios;
  auto const sample = [&] {
    double const seconds = kernel(kernel_calls);
    of_kernel.push_back(seconds / static_cast<double>(kernel_calls));
    of_floor.push_back(floor(floor_calls) / static_cast<double>(floor_calls));
    ratios.push_back(of_floor.back() / of_kernel.back());
    return seconds;
  };
  // Exactly the requested number of iterations: the statistics of repetitions need equal numbers, but samples have
  // different numbers of calls. The last sample counts in part.
  std::int64_t left = state.max_iterations, counted = 0;
  while (state.KeepRunningBatch(counted = std::clamp<std::int64_t>(left, 1, kernel_calls))) {
    state.SetIterationTime(sample() * static_cast<double>(counted) / static_cast<double>(kernel_calls));
    left -= counted;
  }
  while (of_kernel.size() < fewest) sample();

  double const seconds = quantile(of_kernel, 0.5), ratio = quantile(of_floor, 0.5) / seconds;
  double const ns = 1e9 / static_cast<double>(each.values);
  state.counters["floor_ratio"] = ratio;
  state.counters["spread"] = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / quantile(ratios, 0.5);
  state.counters["ns_per_value"] = seconds * ns;
  state.counters["floor_ns_per_value"] = seconds * ratio * ns;
  state.counters["bytes_per_second"] = static_cast<double>(each.bytes) / seconds;
  return ratio;
}

/// @brief time_in_turn() of functions that make one call.
/// @param settle  waits for what calls only enqueued
/// @returns floor_ratio
template <class Kernel, class Floor, class Settle = nothing_pending>
double interleave(benchmark::State& state, amount const& each, Kernel&& kernel, Floor&& floor,
                  Settle const& settle = {}) {
  // waiting for a device takes some microseconds
  constexpr double shortest = std::is_same_v<Settle, nothing_pending> ? 200e-6 : 2e-3;
  return time_in_turn(
      state, each, [&](std::int64_t calls) { return seconds_of(kernel, calls, settle); },
      [&](std::int64_t calls) { return seconds_of(floor, calls, settle); }, shortest);
}

/// Whether a benchmark of this process reported a wrong result: for the exit status of a program.
inline bool failed = false;

/// Reports an error in place of a time.
inline void fail(benchmark::State& state, std::string const& what) {
  failed = true;
  state.SkipWithError(what.c_str());
}

}  // namespace GLOBALQ_ABI::bench
