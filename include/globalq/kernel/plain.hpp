// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of float32 frames: add in the order given, then send on or write the mean.

#include "../core/codec.hpp"
#include "executor.hpp"
#include "leaf.hpp"
#include "load_store.hpp"
#include "operands.hpp"

#include <cstring>

namespace GLOBALQ_ABI::kernel {

/// Own values (unencoded) and those of the sources -> a frame's values, or the mean.
struct add_floats {
  const_vector x;
  segment part;
  bool own;
  double workers;       ///< what sums are divided by
  double const* units;  ///< one: a power of two that values travel divided by
  int wide;
  source_list sources;
  float* out;        ///< or
  mutable_vector y;  ///< where out is null
  std::uint32_t* faults;
  agreed_call const* agreed = nullptr;   ///< on a stream
  value_leaves const* leaves = nullptr;  ///< on a host

  /// On a host.
  void work(std::uint64_t index) const {
    value_leaves const& leaf = *leaves;
    row const p = row_of<host_lanes>(index, 0, 0, part.count);
    float buffer[host_values], sum[host_values];  // a frame may be written over one that is read
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

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    constexpr int N = row_values<Lanes>;
    if (out == nullptr && agreed != nullptr && !agreed->writes) return;
    int const power = agreed != nullptr ? agreed->wide : wide;
    int const exponent = exponent_of_values(power);
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const row = row_of<Lanes>(index, lane, r, part.count);
      if (row.count == 0) continue;
      float buffer[N], sum[N];
      float const* const z = own ? load<N>(x, part.first + row.first, row.count, exponent, buffer) : nullptr;
      for (int i = 0; i < row.count; ++i) sum[i] = own ? z[i] : 0.0F;
      for (int k = 0; k < sources.count; ++k) {
        float const* __restrict in = reinterpret_cast<float const*>(sources[k].codes) + row.first;
        for (int i = 0; i < row.count; ++i) sum[i] += in[i];
      }
      if (out != nullptr) {
        float* __restrict target = out + row.first;
        for (int i = 0; i < row.count; ++i) target[i] = sum[i];
      } else {
        store_scale const scale = scale_of_mean(power);
        if (store<N>(y, part.first + row.first, row.count, scale, sum))
          Kokkos::atomic_or(faults, static_cast<std::uint32_t>(out_of_range));
      }
    }
  }

 private:
  GLOBALQ_FUNCTION int exponent_of_values(int power) const { return -exponent_of(units[0]) - power; }
  GLOBALQ_FUNCTION store_scale scale_of_mean(int power) const {
    return store_scale(units[0] / workers * power_of_two(power));
  }
};

}  // namespace GLOBALQ_ABI::kernel
