// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the values of a GPU thread where there are no codes: four rows of four, read and written in wide accesses.

#include "../executor.hpp"
#include "registers.hpp"

#include <cstddef>
#include <cstdint>

namespace GLOBALQ_ABI::kernel::device {

/// Rows of four consecutive values, 64 apart, of a segment: threads side by side leave no gaps between their accesses.
class value_rows {
 public:
  static constexpr int R = 4, N = 4;
  using floats = float[R][N];
  using words = std::uint32_t[R][N];

  /// @param count  values of the segment
  GLOBALQ_FUNCTION value_rows(std::uint64_t count, std::uint64_t index, int lane)
      : first_(index * tile_values + static_cast<std::uint64_t>(N * lane)) {
    std::uint64_t const rest = count - index * tile_values;
    whole_ = rest >= tile_values;
    left_ = (whole_ ? tile_values : static_cast<int>(rest)) - N * lane;
  }

  GLOBALQ_FUNCTION bool empty() const { return left_ <= 0; }

  /// Values of a row.
  GLOBALQ_FUNCTION int count(int r) const {
    int const left = left_ - 64 * r;
    return whole_ || left > N ? N : (left < 0 ? 0 : left);
  }

  /// Values of Size bytes of a segment that begins at @p segment. Those behind its end are zero.
  template <int Size, int W>
  GLOBALQ_FUNCTION void load(std::byte const* segment, std::uint32_t (&raw)[R][W]) const {
    load_rows<N, Size>(
        global(segment) + first_ * Size, whole_, [&](int r) { return count(r); }, raw);
  }
  template <int Size, int W>
  GLOBALQ_FUNCTION void store(std::byte* segment, std::uint32_t const (&raw)[R][W]) const {
    store_rows<N, Size>(
        global(segment) + first_ * Size, whole_, [&](int r) { return count(r); }, raw);
  }

  /// f(row, place) for every value, those behind the end too.
  template <class F>
  GLOBALQ_FUNCTION static void for_each(F const& f) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < N; ++i) f(r, i);
    }
  }

 private:
  std::uint64_t first_;  ///< of the first row, in the segment
  int left_;             ///< values from there to the end of the tile or of the segment
  bool whole_;           ///< all rows are
};

}  // namespace GLOBALQ_ABI::kernel::device
