// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the values of a GPU thread without codes: four rows of four, loaded and stored in wide accesses.

#include "../executor.hpp"
#include "registers.hpp"

#include <cstddef>
#include <cstdint>

namespace GLOBALQ_ABI::kernel::device {

/// Rows of four consecutive values, 64 apart, of a segment; adjacent threads leave no gaps between their accesses.
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

  /// The number of values in a row.
  GLOBALQ_FUNCTION int count(int r) const {
    int const left = left_ - 64 * r;
    return whole_ || left > N ? N : (left < 0 ? 0 : left);
  }

  /// Loads or stores values of Size bytes of a segment that begins at @p segment. Loads give zero beyond its end.
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

  /// Calls f(row, position) for every value, including those beyond the end.
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
  bool whole_;           ///< whether all values of the tile exist
};

}  // namespace GLOBALQ_ABI::kernel::device
