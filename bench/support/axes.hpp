// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: the axes of every benchmark: number of values and number of threads.

#include <globalq/core/dtype.hpp>
#include <globalq/kernel/executor.hpp>

#include <benchmark/benchmark.h>

#include <string>

namespace globalq::bench {

/// Values of a vector. As float32: 16 KiB, 256 KiB, 4 MiB and 128 MiB.
inline constexpr std::uint64_t lengths[] = {1U << 12, 1U << 16, 1U << 20, 1U << 25};

/// One point of the axes.
struct point {
  std::uint64_t n;  ///< values; a multiple of 4,096
  int threads;      ///< 1: the Serial space; all: the default host space

  kernel::host_executor executor() const {
    if (threads == 1) return kernel::host_executor(Kokkos::Serial());
    return kernel::host_executor(Kokkos::DefaultHostExecutionSpace());
  }
};

/// Registers `NAME/n:.../threads:...` for every length, with one thread and with all.
/// @param run  run(benchmark::State&, point)
template <class Run>
void add(std::string const& name, Run run) {
  int const all = Kokkos::DefaultHostExecutionSpace().concurrency();
  for (int threads : {1, all}) {
    for (std::uint64_t n : lengths)
      benchmark::RegisterBenchmark(
          (name + "/n:" + std::to_string(n) + "/threads:" + std::to_string(threads)).c_str(),
          [run, n, threads](benchmark::State& state) {
            run(state, point{n, threads});
          })
          ->UseManualTime();
    if (all == 1) break;
  }
}

/// Calls f(Value(), suffix of the name) for every timed value type.
template <class F>
void for_each_type(F const& f) {
  f(float(), "");
  f(float16(), "/float16");
  f(bfloat16(), "/bfloat16");
}

}  // namespace globalq::bench
