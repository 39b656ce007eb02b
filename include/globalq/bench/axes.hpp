// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: what benchmarks vary: the number of values and of threads. Needs Google Benchmark.

#include "../kernel/executor.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace GLOBALQ_ABI::bench {

/// One point of the axes.
struct point {
  std::uint64_t n;  ///< values
  int threads;      ///< 1: the Serial space; all: the default host space

  /// Calls f(space) with an instance of the space.
  template <class F>
  decltype(auto) with_space(F&& f) const {
    if (threads == 1) return std::forward<F>(f)(Kokkos::Serial());
    return std::forward<F>(f)(Kokkos::DefaultHostExecutionSpace());
  }

  /// Runs kernels on the space.
  kernel::host_executor executor() const {
    return with_space([](auto const& space) { return kernel::host_executor(space); });
  }
};

/// @brief Registers `NAME/n:.../threads:...` for every length, with one thread and with all.
/// @param run  run(benchmark::State&, point), which sets the time of each iteration
template <class Run>
void add(std::string const& name, std::span<std::uint64_t const> lengths, Run run) {
  int const all = Kokkos::DefaultHostExecutionSpace().concurrency();
  for (int const threads : {1, all}) {
    for (std::uint64_t const n : lengths)
      benchmark::RegisterBenchmark(
          (name + "/n:" + std::to_string(n) + "/threads:" + std::to_string(threads)).c_str(),
          [run, n, threads](benchmark::State& state) {
            run(state, point{n, threads});
          })
          ->UseManualTime();
    if (all == 1) break;
  }
}

}  // namespace GLOBALQ_ABI::bench
