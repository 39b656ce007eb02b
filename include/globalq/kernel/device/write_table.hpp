// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: writes the arrays of a table of levels to device memory.

#include "../../levels/table.hpp"
#include "table.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace GLOBALQ_ABI::kernel::device {

/// The type of levels in device kernels.
template <class Levels>
using levels_on_device =
    std::conditional_t<std::is_same_v<Levels, levels::detail::level_table>, table_view, Levels>;

/// Chooses the cells of a table: the fewest for which each has at most one level besides one at its beginning.
///
/// Rounding of t + offset can move t to the wrong side of a level, by up to one unit in the last place of the sum. The
/// line of the wrong gap is then off by that error divided by the distance of its levels. slack includes this error.
class choose_cells {
 public:
  explicit choose_cells(levels::detail::level_table const& levels) : levels_(levels) {
    best_.slack = least_slack;
    int const lowest = std::ilogb(levels.ascending()[1]) - 1;
    for (int e = 0; e >= lowest; --e) try_offset(power_of_two_float(e));
  }

  table_cells const& best() const { return best_; }

 private:
  static constexpr std::uint32_t least_slack = 16, most_slack = 1024;
  /// The other errors of place_of(), in units of 2^-24: 1 each for difference, rate, product and sum, and 1 for the
  /// bits of the word that are dropped.
  static constexpr double of_rounding = 5;

  static std::uint32_t place(float t, float offset) { return bits_of(t + offset); }
  std::uint32_t place_of_level(std::uint32_t k, float offset) const {
    return place(levels_.ascending()[k], offset);
  }

  void try_offset(float offset) {
    double const miss = largest_miss(offset);
    std::uint32_t slack =
        least_slack;  // twice the error, because the sum in place_of() has half the precision above 2
    while (slack < 2 * (of_rounding + miss) && slack <= most_slack) slack *= 2;
    if (slack > most_slack) return;
    std::uint32_t const low = place(0, offset), high = place(1, offset);
    for (std::int32_t shift = 23; shift >= 13; --shift) {
      std::uint32_t const lowest = low >> shift, count = (high >> shift) - lowest + 1;
      if (count > table_numbers::most_cells || (best_.shift != 0 && count >= best_.count)) return;
      if (!tells_apart(offset, shift)) continue;
      best_ = {offset, shift, lowest, count, slack};
      return;
    }
  }

  bool tells_apart(float offset, std::int32_t shift) const {
    for (std::uint32_t k = 1; k < levels_.size(); ++k) {
      std::uint32_t const at = place_of_level(k, offset), next = place_of_level(k + 1, offset);
      if (at >> shift == next >> shift && (at & ((1U << shift) - 1)) != 0) return false;
    }
    return true;
  }

  /// The largest distance, in units of 2^-24 of a gap, between a value and the gap that it is assigned to.
  double largest_miss(float offset) const {
    float const* const level = levels_.ascending();
    double worst = 0;
    for (std::uint32_t k = 1; k <= levels_.size(); ++k) {
      std::uint32_t const at = place_of_level(k, offset);
      if (place(float_of(bits_of(level[k]) - 1), offset) != at) continue;
      // values round to this place from the midpoint between it and the previous place
      double const middle = (static_cast<double>(float_of(at - 1)) + static_cast<double>(float_of(at))) / 2,
                   unit = static_cast<double>(level[k]) + static_cast<double>(offset) - middle;
      double narrow = static_cast<double>(level[k]) - static_cast<double>(level[k - 1]);
      if (k < levels_.size())
        narrow = std::min(narrow, static_cast<double>(level[k + 1]) - static_cast<double>(level[k]));
      worst = std::max(worst, unit * 0x1p24 / narrow);
    }
    return worst;
  }

  levels::detail::level_table const& levels_;
  table_cells best_;
};

/// Writes the arrays of a table whose levels are arguments of the launch.
struct write_table {
  levels::detail::level_table levels;
  table_cells cells;
  table_numbers* to;

  write_table(levels::detail::level_table const& table, table_numbers* there)
      : levels(table), cells(choose_cells(table).best()), to(there) {}

  /// The number of calls of operator().
  std::uint64_t count() const { return std::max<std::uint64_t>(256, cells.count); }

  /// The levels for kernels that are launched after this one.
  table_view view() const { return {levels, cells, to}; }

  GLOBALQ_FUNCTION void operator()(std::uint64_t n) const {
    std::uint32_t const i = static_cast<std::uint32_t>(n);
    if (i < table_numbers::capacity) write_gap(i);
    if (i < 256) {
      std::int32_t const code = static_cast<std::int8_t>(i);
      to->values[i] = with_sign(levels.value(static_cast<std::uint32_t>(code < 0 ? -code : code)),
                                static_cast<std::uint32_t>(code));
    }
    if (i < cells.count) to->cells[i] = cell(cells.lowest + i);
  }

 private:
  GLOBALQ_FUNCTION void write_gap(std::uint32_t k) const {
    float const level = levels.ascending()[k];
    double rate = 0;
    if (k < levels.size())  // as in level_table
      rate = 0x1p32 / (static_cast<double>(levels.ascending()[k + 1]) - static_cast<double>(level));
    to->gaps[k] = {level, static_cast<float>(rate * 0x1p-32)};
    to->rates[k] = rate;
  }

  /// See table_view::gap_of().
  GLOBALQ_FUNCTION std::uint32_t cell(std::uint32_t number) const {
    std::uint32_t const begin = number << cells.shift, size = 1U << cells.shift;
    std::uint32_t index = 0;
    while (index < levels.size() && bits_of(levels.ascending()[index + 1] + cells.offset) <= begin) ++index;
    std::uint32_t within = size;
    if (index < levels.size()) {
      std::uint32_t const next = bits_of(levels.ascending()[index + 1] + cells.offset) - begin;
      within = next < size ? next : size;
    }
    return ((table_view::first_gap + index) << cells.shift) + size - within - begin;
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
