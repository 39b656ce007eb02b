// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: reads and writes values at selected places.

#include "blocks.hpp"

namespace GLOBALQ_ABI::baseline::detail {

/// Places in one block of work.
inline constexpr std::uint64_t block_places = std::uint64_t{1} << 12;

/// f(first, end) for blocks of places.
template <class F>
void for_places(kernel::host_executor const& on, std::uint64_t count, F const& f) {
  on.items(divide_up(count, block_places),
           [&](std::uint64_t b) { f(b * block_places, std::min(count, (b + 1) * block_places)); });
}

/// out[k] = x[places[k]] / divisor
/// @param divisor  a power of two
template <class Place>
void take(kernel::host_executor const& on, float const* x, std::span<Place const> places, double divisor,
          float* out) {
  float const share = static_cast<float>(1 / divisor);
  for_places(on, places.size(), [&](std::uint64_t first, std::uint64_t end) {
    if (share == 1.0F)
      for (std::uint64_t k = first; k < end; ++k) out[k] = x[places[k]];
    else
      for (std::uint64_t k = first; k < end; ++k) out[k] = x[places[k]] * share;
  });
}

/// y[places[k]] = values[k]
template <class Place>
void put(kernel::host_executor const& on, std::span<Place const> places, float const* values, float* y) {
  for_places(on, places.size(), [&](std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t k = first; k < end; ++k) y[places[k]] = values[k];
  });
}

/// values[k] = values[k] * factor, by a double product rounded once.
/// @returns whether all of them are finite
inline bool scale(kernel::host_executor const& on, std::span<float> values, double factor) {
  std::atomic<bool> finite{true};
  for_blocks(on, values.size(), [&](std::uint64_t first, std::uint64_t count) {
    float* const v = values.data() + first;
    for (std::uint64_t i = 0; i < count; ++i) v[i] = static_cast<float>(static_cast<double>(v[i]) * factor);
    if (largest_bits(v, count) >= float_infinity) finite = false;
  });
  return finite;
}

}  // namespace GLOBALQ_ABI::baseline::detail
