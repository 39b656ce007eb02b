// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: software prefetch.

#include "arithmetic.hpp"

#include <cstddef>

namespace GLOBALQ_ABI {

/// Shortest vector to prefetch, in values: shorter ones are likely in a cache, where prefetching costs up to a fifth.
inline constexpr std::uint64_t prefetch_from = std::uint64_t{1} << 18;

/// Prefetch distance in values: enough work (of the order of 100 ns) to hide the latency of a cache miss.
inline constexpr std::uint64_t values_ahead = 2048;

/// Prefetches bytes that will be read, or written. Always inlined, and callers must be too: GCC removes calls of a
/// function that only prefetches.
template <bool Write = false>
GLOBALQ_ALWAYS_INLINE void prefetch(void const* bytes, std::size_t count) {
#if defined(__GNUC__)
  char const* const first = static_cast<char const*>(bytes);
  for (std::size_t at = 0; at < count; at += 64) __builtin_prefetch(first + at, Write ? 1 : 0);
#else
  (void)bytes, (void)count;
#endif
}

}  // namespace GLOBALQ_ABI
