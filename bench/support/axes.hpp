// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: the axes of every benchmark: number of values and number of threads.

#include <globalq/bench/axes.hpp>
#include <globalq/core/dtype.hpp>

#include <string>

namespace GLOBALQ_ABI::bench {

/// Values of a vector. As float32: 16 KiB, 256 KiB, 4 MiB and 128 MiB.
inline constexpr std::uint64_t lengths[] = {1U << 12, 1U << 16, 1U << 20, 1U << 25};

/// Registers NAME for all of them.
template <class Run>
void add(std::string const& name, Run run) {
  add(name, lengths, run);
}

/// Calls f(Value(), suffix of the name) for every timed value type.
template <class F>
void for_each_type(F const& f) {
  f(float(), "");
  f(float16(), "/float16");
  f(bfloat16(), "/bfloat16");
}

}  // namespace GLOBALQ_ABI::bench
