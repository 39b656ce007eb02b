// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: vectors of 16-bit values as vectors of float, which stages map, and back.

#include "../../core/codec.hpp"
#include "../../kernel/executor.hpp"
#include "../../kernel/host/value_leaves.hpp"

#include <algorithm>

namespace GLOBALQ_ABI::detail {

/// Converts a part of a vector of 16-bit values to float.
inline void widen(kernel::host_executor const& on, const_vector x, segment part, float* to) {
  kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
  on.items(divide_up(part.count, kernel::host_values), [&](std::uint64_t piece) {
    std::uint64_t const at = piece * kernel::host_values, first = part.first + at;
    leaf.load(x, first, static_cast<int>(std::min(kernel::host_values, part.count - at)), 0, to + first);
  });
}

/// The vector as one of mapped vectors' type: itself, or its values in a part, converted.
/// @param room  for them
inline const_vector widened(kernel::host_executor const& on, const_vector x, segment part,
                            mutable_vector room) {
  if (x.type == room.type) return x;
  widen(on, x, part, static_cast<float*>(room.data));
  return {room.data, room.type};
}

/// Converts a part of a vector of float to 16-bit values.
/// @returns whether a value is beyond their range
inline bool narrow(kernel::host_executor const& on, float const* x, segment part, mutable_vector to) {
  kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
  std::uint32_t beyond = 0;
  on.items(divide_up(part.count, kernel::host_values), [&](std::uint64_t piece) {
    std::uint64_t const at = piece * kernel::host_values, first = part.first + at;
    if (leaf.store(to, first, static_cast<int>(std::min(kernel::host_values, part.count - at)), store_scale(),
                   x + first))
      Kokkos::atomic_or(&beyond, 1U);
  });
  return beyond != 0;
}

}  // namespace GLOBALQ_ABI::detail
