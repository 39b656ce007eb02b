// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of floating-point numbers: adds in the given order, then writes a frame or the mean.

#include "../core/codec.hpp"
#include "../core/prefetch.hpp"
#include "executor.hpp"
#include "leaf.hpp"
#include "operands.hpp"

#include <cstring>

namespace GLOBALQ_ABI::kernel {

/// Adds this worker's own values (unencoded) and those of the sources, and writes a frame's values or the mean.
struct floats_call {
  const_vector x{};
  segment part{};
  bool own = false;
  double workers = 1;               ///< divisor of the sums
  double const* divisor = nullptr;  ///< one value: the power of two that values are divided by in a frame
  int wide = 0;
  source_list sources{};
  std::byte* out = nullptr;  ///< the frame's values, or null
  mutable_vector y{};        ///< the mean, if out is null
  std::uint32_t* faults = nullptr;
  dtype sent = dtype::float32;  ///< type of the frame's values; 16 bits are rounded, once the sum is complete
  bool nearest = false;
  random::stream words{};                  ///< else, a word for each value
  std::uint64_t const* step_at = nullptr;  ///< on a stream: the address of their step

  GLOBALQ_FUNCTION int exponent_of_values(int power) const { return -exponent_of(divisor[0]) - power; }
  GLOBALQ_FUNCTION store_scale scale_of_mean(int power) const {
    return store_scale(divisor[0] / workers * power_of_two(power));
  }
  /// The bit pattern of the largest sum whose mean is in range: rounding up may raise the largest numbers of a type beyond
  /// it. Larger sums become this one, unless they are infinite.
  GLOBALQ_FUNCTION std::uint32_t largest_sum(int power) const {
    if (sent == dtype::float32) return float_infinity;
    double const scale = divisor[0] / workers * power_of_two(power),
                 most = largest(y.type) * (1 - 0x1p-22) / scale;
    return most < 0x1p127 ? bits_of(static_cast<float>(most)) : float_infinity;
  }
  GLOBALQ_FUNCTION static float limited(float sum, std::uint32_t most) {
    std::uint32_t const m = bits_of(sum) & float_magnitude;
    return m > most && m < float_infinity ? with_sign(float_of(most), bits_of(sum)) : sum;
  }
  GLOBALQ_FUNCTION std::uint64_t first_tile() const { return part.first / random::tile_values; }
};

/// The loop body on a host; `device/add_floats.hpp` has the one for a device.
struct add_floats : floats_call {
  value_leaves const* leaves;
  alignas(64) static constexpr float zeros[host_values] = {};

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    std::uint64_t const at = index * host_values;
    std::size_t const width = size_of(sent);
    if (own)
      globalq::prefetch(static_cast<std::byte const*>(x.data) + (part.first + at) * size_of(x.type),
                        host_values * size_of(x.type));
    for (int k = 0; k < sources.count; ++k)
      globalq::prefetch(sources[k].codes + at * width, host_values * width);
    if (out != nullptr)
      globalq::prefetch<true>(out + at * width, host_values * width);
    else
      globalq::prefetch<true>(static_cast<std::byte*>(y.data) + (part.first + at) * size_of(y.type),
                              host_values * size_of(y.type));
  }

  void work(std::uint64_t index) const {
    value_leaves const& leaf = *leaves;
    row const p = row_of<host_lanes>(index, 0, 0, part.count);
    float loaded[host_values], added[host_values];
    std::uint32_t const most = out == nullptr ? largest_sum(wide) : float_infinity;
    if (out == nullptr && sources.count == 1 && sent != dtype::float32 && y.type == dtype::float32 &&
        most == float_infinity) {
      if (leaf.scale_stored({sources[0].codes, sent}, p.first, p.count, scale_of_mean(wide),
                            static_cast<float*>(y.data) + part.first + p.first))
        report_range();
      return;
    }
    // rounding scales float32 itself
    bool const rounds = out != nullptr && sent != dtype::float32 && !nearest,
               scales = rounds && x.type == dtype::float32 && sources.count == 0;
    int const exponent = exponent_of_values(wide);
    float const* sum =
        own ? leaf.load(x, part.first + p.first, p.count, scales ? 0 : exponent, loaded) : zeros;
    for (int k = 0; k < sources.count; ++k) {
      leaf.add(sum, {sources[k].codes, sent}, p.first, p.count, added);
      sum = added;
    }
    if (out == nullptr) {
      if (most != float_infinity)
        for (int i = 0; i < p.count; ++i) added[i] = limited(added[i], most);
      if (leaf.store(y, part.first + p.first, p.count, scale_of_mean(wide), sum)) report_range();
    } else if (sent == dtype::float32) {  // the output frame may be one of the sources
      std::memcpy(out + p.first * sizeof(float), sum, static_cast<std::size_t>(p.count) * sizeof(float));
    } else if (nearest) {
      leaf.store({out, sent}, p.first, p.count, store_scale(), sum);
    } else {
      leaf.round(sent, sum, scales ? power_of_two_float(exponent) : 1.0F, p.count, words,
                 first_tile() + p.first / random::tile_values,
                 reinterpret_cast<std::uint16_t*>(out) + p.first);
    }
  }

 private:
  void report_range() const { Kokkos::atomic_or(faults, static_cast<std::uint32_t>(out_of_range)); }
};

}  // namespace GLOBALQ_ABI::kernel
