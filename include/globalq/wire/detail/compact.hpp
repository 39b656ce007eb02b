// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: extracts the non-zeros of a block and their positions, and expands them again.

#include "../block_code.hpp"
#if GLOBALQ_AVX512 && defined(__AVX512VBMI2__)
#include "avx512.hpp"
#endif

namespace GLOBALQ_ABI::wire::detail {

/// Room after the output of compaction, which stores whole vectors.
inline constexpr int compact_slack = 64;

/// Without vector instructions; the same results.
struct portable_compaction {
  /// Writes the positions of non-zeros, in order. @returns their number
  template <class Int>
  GLOBALQ_LOOP static int positions(Int const* codes, int count, std::uint16_t* out) {
    int n = 0;
    for (int i = 0; i < count; ++i) {
      out[n] = static_cast<std::uint16_t>(i);
      n += codes[i] != 0;
    }
    return n;
  }
  /// Writes the non-zeros, in order, and a bitmap of their positions. @returns their number
  template <class Int>
  GLOBALQ_LOOP static int non_zeros(Int const* codes, int count, Int* out, std::byte* bitmap) {
    int n = 0;
    for (int first = 0; first < count; first += 8) {
      std::uint32_t bits = 0;
      for (int i = first; i < first + 8 && i < count; ++i) {
        std::uint32_t const is = codes[i] != 0;
        out[n] = codes[i];
        n += static_cast<int>(is);
        bits |= is << (i - first);
      }
      bitmap[first / 8] = static_cast<std::byte>(bits);
    }
    return n;
  }
  /// Restores the codes. @pre bits from count on are zero; values has room for compact_slack more
  template <class Int>
  GLOBALQ_LOOP static void expand(std::byte const* bitmap, Int const* values, int count, Int* codes) {
    for (int i = 0; i < count; ++i) {
      std::uint32_t const is = (static_cast<std::uint32_t>(bitmap[i / 8]) >> (i % 8)) & 1U;
      codes[i] = static_cast<Int>(*values & -static_cast<std::int32_t>(is));
      values += is;
    }
  }
};

#if GLOBALQ_AVX512 && defined(__AVX512VBMI2__)
using compaction = avx512_compaction;
#else
using compaction = portable_compaction;
#endif

}  // namespace GLOBALQ_ABI::wire::detail
