// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: the form of a sparse block, from the number and size of its non-zeros. On host and device.

#include "../../core/arithmetic.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::wire::detail {

/// The parts of a sparse block, in bytes: see wire::sparse.
struct sparse_form {
  /// An upper bound on the non-zeros of a block whose positions are shorter than the bitmap.
  static constexpr int most_positions = 340;

  GLOBALQ_FUNCTION static constexpr int bitmap_bytes(int count) { return (count + 7) / 8; }
  GLOBALQ_FUNCTION static constexpr int position_bytes(int n) { return (3 * n + 1) / 2; }
  GLOBALQ_FUNCTION static constexpr int field_bytes(int n, int w) { return (n * w + 7) / 8; }
  GLOBALQ_FUNCTION static constexpr bool takes_positions(int n, int count) {
    return 2 + position_bytes(n) < bitmap_bytes(count);
  }
  /// Bytes of the positions or the bitmap, whichever is used.
  GLOBALQ_FUNCTION static constexpr int where_bytes(int n, int count) {
    return takes_positions(n, count) ? 2 + position_bytes(n) : bitmap_bytes(count);
  }
  /// A whole block with n non-zeros of w bits.
  GLOBALQ_FUNCTION static constexpr int block_bytes(int n, int w, int count) {
    return n == 0 ? 1 : 1 + where_bytes(n, count) + field_bytes(n, w);
  }

  /// The bits that w must cover for a magnitude: those of magnitude - 1 and, from 128 on, a bit above the seventh. The
  /// results for several magnitudes may be or-ed, because the highest bit comes from the largest magnitude.
  GLOBALQ_FUNCTION static constexpr std::uint32_t asks(std::uint32_t magnitude) {
    return magnitude == 0 ? 0 : (magnitude - 1) | (magnitude & ~127U);
  }
  /// w, the bits of a non-zero.
  /// @param asked  the results of asks() of all non-zeros, or-ed
  template <class Int>
  GLOBALQ_FUNCTION static int width(std::uint32_t asked) {
    int w = 1;
    for (; asked != 0; asked >>= 1) ++w;
    return w <= 8 ? w : sizeof(Int) == 1 ? 8 : 16;
  }
};
static_assert(!sparse_form::takes_positions(sparse_form::most_positions, 4096));

}  // namespace GLOBALQ_ABI::wire::detail
