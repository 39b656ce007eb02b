// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: a table of levels for device kernels: some parameters, and arrays that threads gather from.
///
/// A gather within a few cache lines of 128 bytes costs a GPU about as much as one from shared memory. A search in the
/// kernel's arguments, at addresses that differ between the threads of a warp, would take one transaction per address
/// instead.

#include "../../core/concepts.hpp"

#include <cstddef>
#include <cstdint>

namespace GLOBALQ_ABI::kernel::device {

/// The arrays of a table in device memory. write_table.hpp writes them.
struct table_numbers {
  static constexpr int capacity = 128, most_cells = 1024;
  /// A level, and 1 over its distance to the next one: 0 for the last level.
  struct alignas(8) gap {
    float level, rate;
  };

  gap gaps[capacity];               ///< by index; 2 after the last level
  std::uint32_t cells[most_cells];  ///< see table_view::gap_of()
  double rates[capacity];           ///< 2^32 over the distance to the next level, 0 for the last
  float values[256];                ///< of codes from 0 to 127, and from -128 to -1
};

/// Loads one element from memory that is constant while a kernel runs.
/// @{
template <class Number>
GLOBALQ_FUNCTION Number gathered(Number const* p) {
#if defined(__CUDA_ARCH__)
  return __ldg(p);
#else
  return *p;
#endif
}
GLOBALQ_FUNCTION table_numbers::gap gathered(table_numbers::gap const* p) {
#if defined(__CUDA_ARCH__)
  float2 const both = __ldg(reinterpret_cast<float2 const*>(p));
  return {both.x, both.y};
#else
  return *p;
#endif
}
/// @}

/// The cells by which values find their gap: the upper bits of the float t + offset are the cell.
struct table_cells {
  float offset = 0;  ///< a power of two: cells are even below it, and finer toward zero above
  std::int32_t shift =
      0;  ///< number of bits within a cell; 0: there are no cells, and binary search finds gaps
  std::uint32_t lowest = 0;  ///< cell of t = 0
  std::uint32_t count = 0;
  std::uint32_t slack = 0;  ///< see table_view
};

/// The levels of a level_table, in device memory.
///
/// An index is computed in float32. For a magnitude in gap k, at fraction f of it, the index is k + 1 if f * 2^32 is
/// above the word, otherwise k. It is therefore the upper byte of "place" = (k + 1 + f) * 2^24 - word / 2^8. Rounding
/// changes a place by less than slack. If the lower bits are within slack of a multiple of 2^24, locate() decides
/// instead; it gives the bits of level_table::locate(), the definition.
class table_view {
 public:
  static constexpr bool evenly_spaced = false;

  table_view() = default;
  /// @tparam Table  a levels::detail::level_table
  template <class Table>
  table_view(Table const& levels, table_cells const& cells, table_numbers const* there)
      : there_(there),
        cells_(reinterpret_cast<std::uintptr_t>(there->cells) - sizeof(std::uint32_t) * cells.lowest),
        offset_(cells.offset),
        start_(1.0F + static_cast<float>(cells.slack) * 0x1p-24F),
        shift_(cells.shift),
        open_(0x1000000U - 2 * cells.slack),
        size_(levels.size()),
        zero_free_(levels.zero_free()),
        reversed_(levels.reversed()) {}

  GLOBALQ_FUNCTION float extent() const { return 1.0F; }
  GLOBALQ_FUNCTION std::uint32_t max_code() const { return size_; }

  /// The index of the gap that contains a magnitude, and 2^32 times the fraction within it.
  struct found {
    std::int32_t index;
    std::uint32_t threshold;
  };
  GLOBALQ_FUNCTION found find(float t) const {
    std::int32_t k = 0;
    GLOBALQ_NO_UNROLL
    for (std::int32_t step = 64; step > 0; step /= 2)
      k += gathered(&there_->gaps[k + step].level) <= t ? step : 0;
    double const above = static_cast<double>(t) - static_cast<double>(gathered(&there_->gaps[k].level));
    std::int64_t const threshold = static_cast<std::int64_t>(above * gathered(there_->rates + k));
    return {k, static_cast<std::uint32_t>(threshold > 0xffffffffLL ? 0xffffffffLL : threshold)};
  }

  /// level_table::locate().
  GLOBALQ_FUNCTION neighbors locate(float t) const {
    found const at = find(t);
    return {code_of(at.index), code_of(at.index < last() ? at.index + 1 : last()), at.threshold};
  }

  GLOBALQ_FUNCTION float value(std::uint32_t code) const { return gathered(there_->values + (code & 127U)); }
  /// value() with the sign of the code.
  GLOBALQ_FUNCTION float signed_value(std::int32_t code) const {
    return gathered(there_->values + static_cast<std::uint8_t>(code));
  }

  GLOBALQ_FUNCTION bool has_cells() const { return shift_ != 0; }
  GLOBALQ_FUNCTION bool zero_free() const { return zero_free_; }
  GLOBALQ_FUNCTION bool reversed() const { return reversed_; }

  /// The number of the first gap, chosen so that the sum in place_of() is an index.
  static constexpr std::uint32_t first_gap = 0x81;

  /// Whether a gap begins above a magnitude. @pre gap < first_gap + 128
  GLOBALQ_FUNCTION bool begins_above(std::uint32_t gap, float t) const {
    return gathered(&numbered(gap)->level) > t;
  }

  /// The gap of a magnitude; next to a level, it may be the gap on the other side of that level.
  ///
  /// The entry of a cell holds the number of its first gap above the bits that lie within a cell. Below them it holds a
  /// number whose sum with those bits carries into the next gap at the level inside the cell. A cell contains at most
  /// one such level.
  /// @pre has_cells()
  GLOBALQ_FUNCTION std::uint32_t gap_of(float t) const {
    std::uint32_t const at = bits_of(t + offset_);
    auto const cell = reinterpret_cast<std::uint32_t const*>(
        cells_ + sizeof(std::uint32_t) * static_cast<std::uint64_t>(at >> shift_));
    return (at + gathered(cell)) >> shift_;
  }

  /// The place of a magnitude in or next to a gap.
  ///
  /// The bits of 1 + f are 127 * 2^23 + f * 2^23. Twice that is 127 * 2^24 + f * 2^24. Adding first_gap above the lower
  /// 24 bits turns 127 into 0, and ~word adds 1 - word.
  /// @param negated  the upper 24 bits of ~word
  GLOBALQ_FUNCTION std::uint32_t place_of(float t, std::uint32_t gap, std::uint32_t negated) const {
    table_numbers::gap const g = gathered(numbered(gap));
    float const fraction = (t - g.level) * g.rate + start_;  // a fused multiply-add is allowed here
    return 2 * bits_of(fraction) + ((gap << 24) + negated);
  }

  /// Whether a place is too close to a boundary, so that the definition must decide.
  GLOBALQ_FUNCTION bool is_open(std::uint32_t place) const { return (place & open_) == 0; }

  /// The place according to the definition.
  /// @param compared  compared() of the rounding
  GLOBALQ_FUNCTION std::uint32_t decided_place(float t, std::uint32_t compared) const {
    found const at = find(t);
    std::int32_t const index = at.index + (compared < at.threshold ? 1 : 0);
    return (static_cast<std::uint32_t>(index < last() ? index : last()) << 24) + 0x800000U;
  }

 private:
  /// Computed in 64 bits, so that the subtraction becomes part of the address.
  GLOBALQ_FUNCTION table_numbers::gap const* numbered(std::uint32_t gap) const {
    return there_->gaps + (std::uint64_t{gap} - first_gap);
  }
  GLOBALQ_FUNCTION std::int32_t last() const { return static_cast<std::int32_t>(size_); }
  GLOBALQ_FUNCTION std::int32_t code_of(std::int32_t k) const {
    if (k == 0) return zero_free_ ? -1 : 0;
    return reversed_ ? last() + 1 - k : k;
  }

  table_numbers const* there_ = nullptr;
  std::uintptr_t cells_ = 0;  ///< where the entry of cell 0 would be
  float offset_ = 0;
  float start_ = 1;  ///< 1 + slack * 2^-24
  std::int32_t shift_ = 0;
  std::uint32_t open_ = 0;
  std::uint32_t size_ = 0;
  bool zero_free_ = false;
  bool reversed_ = false;
};

}  // namespace GLOBALQ_ABI::kernel::device
