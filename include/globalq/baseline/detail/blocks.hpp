// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: parallel loops over the values of layers, in blocks.

#include "../../core/arithmetic.hpp"
#include "../../kernel/executor.hpp"
#include "../../train/adapt/model_layout.hpp"
#include "../../transport/concept.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace GLOBALQ_ABI::baseline::detail {

/// Consecutive values.
struct run {
  std::uint64_t first = 0, count = 0;
};

/// Values of a block: some microseconds of work.
inline constexpr std::uint64_t block_values = std::uint64_t{1} << 14;

/// The values of all layers, in order of their places; adjacent layers form one run.
inline std::vector<run> runs_of(adapt::model_layout const& layers) {
  std::vector<run> runs;
  for (adapt::layer const& l : layers)
    if (l.size != 0) runs.push_back({l.offset, l.size});
  std::sort(runs.begin(), runs.end(), [](run a, run b) { return a.first < b.first; });
  std::size_t last = 0;
  for (std::size_t k = 1; k < runs.size(); ++k) {
    if (runs[last].first + runs[last].count == runs[k].first)
      runs[last].count += runs[k].count;
    else
      runs[++last] = runs[k];
  }
  if (!runs.empty()) runs.resize(last + 1);
  return runs;
}

/// Divides runs into blocks.
inline std::vector<run> blocks_of(std::span<run const> runs) {
  std::vector<run> blocks;
  std::uint64_t count = 0;
  for (run const& r : runs) count += divide_up(r.count, block_values);
  blocks.reserve(count);
  for (run const& r : runs)
    for (std::uint64_t at = 0; at < r.count; at += block_values)
      blocks.push_back({r.first + at, std::min(block_values, r.count - at)});
  return blocks;
}

/// f(first, count) for blocks of [0, length).
template <class F>
void for_blocks(kernel::host_executor const& on, std::uint64_t length, F const& f) {
  on.items(divide_up(length, block_values),
           [&](std::uint64_t b) { f(b * block_values, std::min(block_values, length - b * block_values)); });
}

/// f(first, count) for given blocks.
template <class F>
void for_blocks(kernel::host_executor const& on, std::span<run const> blocks, F const& f) {
  on.items(blocks.size(), [&](std::uint64_t b) { f(blocks[b].first, blocks[b].count); });
}

/// The bits of the largest magnitude. NaN > infinity > finite.
GLOBALQ_LOOP std::uint32_t largest_bits(float const* x, std::uint64_t count) {
  std::uint32_t top = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t const b = bits_of(x[i]) & float_magnitude;
    top = b > top ? b : top;
  }
  return top;
}

inline std::uint32_t largest_bits(kernel::host_executor const& on, std::span<run const> blocks,
                                  float const* x) {
  std::atomic<std::uint32_t> top{0};
  for_blocks(on, blocks, [&](std::uint64_t first, std::uint64_t count) {
    std::uint32_t const here = largest_bits(x + first, count);
    std::uint32_t seen = top.load(std::memory_order_relaxed);
    while (here > seen && !top.compare_exchange_weak(seen, here, std::memory_order_relaxed)) {
    }
  });
  return top.load();
}

inline void fill(kernel::host_executor const& on, std::span<run const> blocks, float* y, float value) {
  for_blocks(on, blocks,
             [&](std::uint64_t first, std::uint64_t count) { std::fill_n(y + first, count, value); });
}

inline void copy(kernel::host_executor const& on, std::span<run const> blocks, float const* x, float* y) {
  if (x == y) return;
  for_blocks(on, blocks,
             [&](std::uint64_t first, std::uint64_t count) { std::copy_n(x + first, count, y + first); });
}

/// @brief The executor of a worker's kernels: on the space of its transport, or on one that is kept for the next call.
class worker_executor {
 public:
  template <Transport T>
  kernel::host_executor of(T& workers) {
    static_assert(!transport::OnStream<T>,
                  "globalq: compressors work in host memory; use a transport of host memory");
    if constexpr (requires { workers.executor(); }) {
      return workers.executor();
    } else if constexpr (requires { requires std::is_lvalue_reference_v<decltype(workers.execution())>; }) {
      return kernel::host_executor::borrowing(workers.execution());
    } else {
      if (!kept_ || of_ != &workers) {
        if constexpr (transport::OwnExecution<T>)
          kept_.emplace(workers.execution());
        else
          kept_.emplace(Kokkos::DefaultHostExecutionSpace());
        of_ = &workers;
      }
      return *kept_;
    }
  }

 private:
  std::optional<kernel::host_executor> kept_;
  void const* of_ = nullptr;
};

}  // namespace GLOBALQ_ABI::baseline::detail
