// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: asking for memory before it is due.

#include "arithmetic.hpp"

#include <cstddef>

namespace GLOBALQ_ABI {

/// From how many values on: shorter vectors are likely to be in a cache already, and asking costs up to a fifth there.
inline constexpr std::uint64_t prefetch_from = std::uint64_t{1} << 18;

/// How many values ahead: some 100 ns of work each hide what a miss costs.
inline constexpr std::uint64_t values_ahead = 2048;

/// Asks for bytes that will be read, or written. (Always inlined, and so must be what calls it: GCC removes calls of a
/// function that does nothing but prefetch.)
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
