// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: what the form of a sparse block follows from: how many non-zeros there are, and how large. On host and device.

#include "../../core/arithmetic.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::wire::detail {

/// The parts of a sparse block, in bytes: see wire::sparse.
struct sparse_form {
  /// The most non-zeros whose positions are shorter than a bit for each code of a block.
  static constexpr int most_positions = 340;

  GLOBALQ_FUNCTION static constexpr int bitmap_bytes(int count) { return (count + 7) / 8; }
  GLOBALQ_FUNCTION static constexpr int position_bytes(int n) { return (3 * n + 1) / 2; }
  GLOBALQ_FUNCTION static constexpr int field_bytes(int n, int w) { return (n * w + 7) / 8; }
  GLOBALQ_FUNCTION static constexpr bool takes_positions(int n, int count) {
    return 2 + position_bytes(n) < bitmap_bytes(count);
  }
  /// What tells where the non-zeros are.
  GLOBALQ_FUNCTION static constexpr int where_bytes(int n, int count) {
    return takes_positions(n, count) ? 2 + position_bytes(n) : bitmap_bytes(count);
  }
  /// A whole block with n non-zeros of w bits.
  GLOBALQ_FUNCTION static constexpr int block_bytes(int n, int w, int count) {
    return n == 0 ? 1 : 1 + where_bytes(n, count) + field_bytes(n, w);
  }

  /// What a magnitude asks of w: the bits of magnitude - 1, and a bit above the seventh from 128 on. The bits that any
  /// of several magnitudes asks for are asked for by the largest of them, or lie below these; so they may be or-ed.
  GLOBALQ_FUNCTION static constexpr std::uint32_t asks(std::uint32_t magnitude) {
    return magnitude == 0 ? 0 : (magnitude - 1) | (magnitude & ~127U);
  }
  /// w, the bits of a non-zero.
  /// @param asked  what all non-zeros asked for
  template <class Lane>
  GLOBALQ_FUNCTION static int width(std::uint32_t asked) {
    int w = 1;
    for (; asked != 0; asked >>= 1) ++w;
    return w <= 8 ? w : sizeof(Lane) == 1 ? 8 : 16;
  }
};
static_assert(!sparse_form::takes_positions(sparse_form::most_positions, 4096));

}  // namespace GLOBALQ_ABI::wire::detail
