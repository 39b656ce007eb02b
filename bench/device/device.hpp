// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: common code of the benchmarks in device memory.

#include <globalq/bench/measure.hpp>

#include <benchmark/benchmark.h>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
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

/// Vectors of the same values, which calls take in turn. Together they are larger than the caches of today's GPUs (50 MiB), so that
/// each call reads from memory and writes to it.
template <class T>
class in_turn {
 public:
  explicit in_turn(device<T> const& first) : all_{first} {
    std::uint64_t const bytes = first.size() * sizeof(T);
    std::uint64_t const vectors = only_checks ? 1 : 1 + (std::uint64_t{256} << 20) / (bytes + 1);
    while (all_.size() < std::min<std::uint64_t>(vectors, 64)) {
      all_.emplace_back(Kokkos::view_alloc("one of several", Kokkos::WithoutInitializing), first.size());
      Kokkos::deep_copy(all_.back(), first);
    }
  }
  /// As many others, with the same values. A copy shares memory.
  in_turn others() const {
    device<T> const another(Kokkos::view_alloc("one of several", Kokkos::WithoutInitializing),
                            first().size());
    Kokkos::deep_copy(another, first());
    return in_turn(another);
  }
  device<T> const& first() const { return all_.front(); }
  device<T> const& next() { return all_[at_ = (at_ + 1) % all_.size()]; }
  /// What next() returned last.
  device<T> const& last() const { return all_[at_]; }
  std::vector<device<T>> const& all() const { return all_; }

 private:
  std::vector<device<T>> all_;
  std::size_t at_ = 0;
};

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
  in_turn<unsigned char> from(device<unsigned char>("from", bytes / 2)), to = from.others();
  space const stream;
  return against(state, {n, bytes}, kernel, [&] { Kokkos::deep_copy(stream, to.next(), from.next()); });
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
