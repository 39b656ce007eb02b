// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: common code of the benchmarks in device memory.

#include <globalq/bench/measure.hpp>

#include <benchmark/benchmark.h>
#include <Kokkos_Core.hpp>

#include <string>
#include <vector>

namespace GLOBALQ_ABI::bench {

using space = Kokkos::DefaultExecutionSpace;
using memory = space::memory_space;
template <class T>
using device = Kokkos::View<T*, memory>;

/// The lengths to time, or with --check the single length to check.
inline std::vector<std::uint64_t> lengths = {1U << 20, 1U << 24, 1U << 28};
inline bool only_checks = false;

/// Times a kernel and its floor; with --check, runs the kernel once without timing.
/// @returns floor_ratio
template <class Kernel, class Floor>
double against(benchmark::State& state, amount const& each, Kernel const& kernel, Floor const& floor) {
  auto const settle = [] { space().fence(); };
  if (!only_checks) return interleave(state, each, kernel, floor, settle);
  kernel();
  settle();
  while (state.KeepRunning()) state.SetIterationTime(1);
  return 0;
}

/// Times a kernel and a copy of the same bytes.
/// @param bytes  read and written in a call
template <class Kernel>
double against_copy(benchmark::State& state, std::uint64_t n, std::uint64_t bytes, Kernel const& kernel) {
  using bytes_view = device<unsigned char>;
  bytes_view const from("from", bytes / 2);
  bytes_view const to(Kokkos::view_alloc("to", Kokkos::WithoutInitializing), bytes / 2);
  space const stream;
  return against(state, {n, bytes}, kernel, [&] { Kokkos::deep_copy(stream, to, from); });
}

template <class Run>
void add(std::string const& name, Run run) {
  for (std::uint64_t n : lengths) {
    auto* const made = benchmark::RegisterBenchmark(("device/" + name + "/n:" + std::to_string(n)).c_str(),
                                                    [run, n](benchmark::State& state) { run(state, n); });
    made->UseManualTime();
    if (only_checks) made->Iterations(1);
  }
}

/// The benchmarks of sparse.cpp.
void add_sparse();

}  // namespace GLOBALQ_ABI::bench
