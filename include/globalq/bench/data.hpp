// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: vectors that look like gradients.

#include "../core/dtype.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <bit>
#include <cstdint>

namespace GLOBALQ_ABI::bench {

/// A vector in host memory.
template <class Value>
using values = Kokkos::View<Value*, Kokkos::HostSpace>;

/// 64 bits that depend on all bits of @p x.
/// @source Steele, Lea and Flood 2014, the finalizer of SplitMix64
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// @brief Values with tails as heavy as those of a gradient.
///
/// A value has one of the standard deviations 0.01, 0.02, 0.04, ..., 0.32, each half as frequent as the one before, and is normal with
/// it (a sum of four uniforms).
/// @tparam Value  float, double, float16 or bfloat16: the same numbers, up to rounding
/// @param seed    below 2^16; vectors of different seeds are independent
/// @pre Kokkos is initialized
template <class Value>
values<Value> gradient(std::uint64_t n, std::uint64_t seed) {
  values<Value> x(Kokkos::view_alloc("gradient", Kokkos::WithoutInitializing), n);
  Kokkos::parallel_for("gradient", Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, n),
                       [=](std::uint64_t i) {
                         std::uint64_t const bits = mix((seed << 48) + (i + 1) * 0x9E3779B97F4A7C15ULL);
                         int sum = -2 * 65535;
                         for (int k = 0; k < 4; ++k) sum += static_cast<int>((bits >> (16 * k)) & 0xffffU);
                         int const tail = std::min(std::countr_zero(mix(bits)), 5);
                         float const deviation = 0.01F / 37837.0F * static_cast<float>(1 << tail);
                         x(i) = static_cast<Value>(static_cast<float>(sum) * deviation);
                       });
  return x;
}

}  // namespace GLOBALQ_ABI::bench
