// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of float32 frames: adds in the given order, then writes a frame or the mean.

#include "../core/codec.hpp"
#include "executor.hpp"
#include "leaf.hpp"
#include "operands.hpp"

#include <cstring>

namespace GLOBALQ_ABI::kernel {

/// Adds this worker's own values (unencoded) and those of the sources, and writes a frame's values or the mean.
struct plain_call {
  const_vector x;
  segment part;
  bool own;
  double workers;         ///< divisor of the sums
  double const* divisor;  ///< one value: the power of two that values are divided by in a frame
  int wide;
  source_list sources;
  float* out;        ///< the frame's values, or null
  mutable_vector y;  ///< the mean, if out is null
  std::uint32_t* faults;

  GLOBALQ_FUNCTION int exponent_of_values(int power) const { return -exponent_of(divisor[0]) - power; }
  GLOBALQ_FUNCTION store_scale scale_of_mean(int power) const {
    return store_scale(divisor[0] / workers * power_of_two(power));
  }
};

/// The loop body on a host; `device/add_floats.hpp` has the one for a device.
struct add_floats : plain_call {
  value_leaves const* leaves;

  void work(std::uint64_t index) const {
    value_leaves const& leaf = *leaves;
    row const p = row_of<host_lanes>(index, 0, 0, part.count);
    float buffer[host_values], sum[host_values];  // the output frame may be one of the sources
    auto const bytes = static_cast<std::size_t>(p.count) * sizeof(float);
    if (own)
      std::memcpy(sum, leaf.load(x, part.first + p.first, p.count, exponent_of_values(wide), buffer), bytes);
    else
      std::memset(sum, 0, bytes);
    for (int k = 0; k < sources.count; ++k)
      leaf.add(reinterpret_cast<float const*>(sources[k].codes) + p.first, p.count, sum);
    if (out != nullptr)
      std::memcpy(out + p.first, sum, bytes);
    else if (leaf.store(y, part.first + p.first, p.count, scale_of_mean(wide), sum))
      Kokkos::atomic_or(faults, static_cast<std::uint32_t>(out_of_range));
  }
};

}  // namespace GLOBALQ_ABI::kernel
