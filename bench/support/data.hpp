// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: vectors that look like gradients, and memory for frames.

#include <globalq/core/codec.hpp>
#include <globalq/core/dtype.hpp>

#include <Kokkos_Core.hpp>
#include <bit>
#include <cmath>

namespace globalq::bench {

/// A vector in host memory.
template <class Value>
using values = Kokkos::View<Value*, Kokkos::HostSpace>;

/// 64 bits that depend on all bits of @p x (the finalizer of SplitMix64: Steele, Lea and Flood 2014).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Normal values (sums of four uniforms) with standard deviations 0.01, 0.02, 0.04, ..., 0.32, each half as frequent as
/// the previous one, so that the tails are as heavy as a gradient's. The same numbers for every type, up to its
/// rounding.
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

/// The rounding error of a stored value of magnitude 1.
template <class Value>
constexpr double unit_roundoff() {
  switch (dtype_of<Value>::value) {
    case dtype::float16:
      return 0x1p-11;
    case dtype::bfloat16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

template <class Value>
const_vector reading(values<Value> const& x) {
  return {x.data(), dtype_of<Value>::value};
}
template <class Value>
mutable_vector writing(values<Value> const& y) {
  return {y.data(), dtype_of<Value>::value};
}

}  // namespace globalq::bench
