// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief levels: any ascending levels, given at run time (for example learned levels).

#include "../core/concepts.hpp"
#include "../core/error.hpp"
#include "../core/float_environment.hpp"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::levels {

namespace detail {

/// Common base of tables: up to 127 magnitudes in (0, 1], the last one 1, and below them zero or minus the first.
///
/// locate() is the definition, for one value. Loops over many values (kernel/detail/table.hpp) avoid double: between
/// two levels, "index plus fraction" is a line. Its value in float32 has a bounded error (slack()), and nearly always
/// decides the rounding; where it does not, the loops call locate().
class level_table {
 public:
  static constexpr bool evenly_spaced = false;
  static constexpr std::uint32_t limit = 127;
  static constexpr int capacity = 128;

  /// @param magnitudes  the non-zero levels, ascending, the last one 1
  /// @param zero_free   levels are +-magnitudes without zero
  /// @param reversed    code 1 is the largest level instead of the smallest
  level_table(std::span<double const> magnitudes, bool zero_free, bool reversed)
      : size_(static_cast<std::uint32_t>(magnitudes.size())),
        first_(zero_free ? -1 : 0),
        flip_(reversed ? -1 : 0),
        offset_(reversed ? static_cast<std::int32_t>(magnitudes.size()) + 2 : 0) {
    float_environment const exact;
    for (std::uint32_t k = 0; k < size_; ++k) level_[k + 1] = static_cast<float>(magnitudes[k]);
    level_[0] = zero_free ? -level_[1] : 0.0F;
    for (std::uint32_t k = 1; k <= size_; ++k)
      value_[static_cast<std::uint32_t>(code_of(static_cast<std::int32_t>(k)))] = level_[k];
    for (std::uint32_t k = 0; k < size_; ++k)
      rate_[k] = 0x1p32 / (static_cast<double>(level_[k + 1]) - static_cast<double>(level_[k]));
    for (std::uint32_t k = size_ + 1; k < capacity; ++k) level_[k] = 2.0F;  // above every t
    draw_lines();
    for (int shift = 20; shift <= 23 && cells_.shift == 0; ++shift) find_cells(shift);
  }

  /// Non-zero magnitudes.
  GLOBALQ_FUNCTION std::uint32_t size() const { return size_; }
  GLOBALQ_FUNCTION std::uint32_t max_code() const { return size_; }
  GLOBALQ_FUNCTION bool zero_free() const { return first_ != 0; }
  GLOBALQ_FUNCTION bool reversed() const { return flip_ != 0; }
  char const* name() const { return zero_free() ? "symmetric" : "table"; }
  /// Everything except the values, which may change between calls and are compared separately.
  std::uint64_t parameters() const {
    return std::uint64_t{size_} << 2 | (zero_free() ? 2U : 0U) | (reversed() ? 1U : 0U);
  }
  GLOBALQ_FUNCTION float extent() const { return 1.0F; }
  /// Whether other levels have the same codes: same number, same order, both with or both without zero.
  bool alike(level_table const& other) const {
    return size_ == other.size_ && first_ == other.first_ && flip_ == other.flip_;
  }

  /// Bisects in seven steps; computes the fraction in double, exact to 2^-52.
  /// @pre 0 <= t <= extent()
  GLOBALQ_FUNCTION neighbors locate(float t) const {
    std::int32_t k =
        0;  // unrolled, as an inner loop would prevent the loop over values from being vectorized
    k += level_[k + 64] <= t ? 64 : 0;
    k += level_[k + 32] <= t ? 32 : 0;
    k += level_[k + 16] <= t ? 16 : 0;
    k += level_[k + 8] <= t ? 8 : 0;
    k += level_[k + 4] <= t ? 4 : 0;
    k += level_[k + 2] <= t ? 2 : 0;
    k += level_[k + 1] <= t ? 1 : 0;
    double const above = static_cast<double>(t) - static_cast<double>(level_[k]);
    std::int64_t const threshold = static_cast<std::int64_t>(above * rate_[k]);
    std::int32_t const last = static_cast<std::int32_t>(size_);
    std::int32_t const up = k + 1 > last ? last : k + 1;
    return {code_of(k), code_of(up),
            static_cast<std::uint32_t>(threshold > 0xffffffffLL ? 0xffffffffLL : threshold)};
  }

  GLOBALQ_FUNCTION float value(std::uint32_t code) const { return value_[code & (capacity - 1)]; }

  /// The code of a level's index: the index or, reversed, size + 1 - index, without a branch.
  GLOBALQ_FUNCTION std::int32_t code_of(std::int32_t k) const {
    return k == 0 ? first_ : (k ^ flip_) + offset_;
  }

  /// Levels by index, then 2s; values by code; the lines 2^24 (index + fraction) + slack() = t * slope + offset.
  /// @shape capacity
  GLOBALQ_FUNCTION float const* ascending() const { return level_; }
  GLOBALQ_FUNCTION float const* by_code() const { return value_; }
  GLOBALQ_FUNCTION float const* slopes() const { return slope_; }
  GLOBALQ_FUNCTION float const* offsets() const { return line_; }

  /// The gaps of up to 8 levels by sixteen cells of t. A cell has one exponent and leading mantissa bits; the lowest
  /// cell also contains all smaller t. Its number is the lower four bits of t's bits shifted down by `shift`. t is in
  /// gap[2 cell], or in gap[2 cell + 1] if it is at least the level between the two. shift 0: too many levels, or a
  /// cell has more gaps.
  struct leading_bits {
    std::uint32_t lowest = 0;
    std::int32_t shift = 0;
    std::uint8_t gap[32] = {};
  };
  leading_bits const& cells() const { return cells_; }

  /// A bound on the error of a line in float32, in units of 2^-24 of a gap: a power of two. It is small unless
  /// neighboring levels are nearly equal: 2^6 for 7 evenly spaced levels, 2^10 for 127.
  GLOBALQ_FUNCTION std::uint32_t slack() const { return slack_; }

  /// Whether lines decide often enough to be faster.
  GLOBALQ_FUNCTION bool has_lines() const { return slack_ <= 4096; }

 private:
  /// Computes slopes, offsets and slack(). Slope, product, offset and sum each have a relative rounding error of 2^-24.
  /// The errors are t / gap <= above / gap for the slope and for the product; the same for t = 1, which loops replace
  /// by 1 - 2^-24; max(k, |below| / gap) for the offset; k + 1 for the sum; 1 for truncating it to an integer. The
  /// word's lower eight bits add another 1, and 2 are left for the effect of slack() itself on offset and sum.
  void draw_lines() {
    double worst = 0;
    for (std::uint32_t k = 0; k < size_; ++k) {
      double const below = static_cast<double>(level_[k]), above = static_cast<double>(level_[k + 1]),
                   gap = above - below, index = k;
      double const least = below < 0 ? -below : below;
      worst = std::max(worst, 3 * above / gap + std::max(index, least / gap) + index + 1);
    }
    slack_ = 8;
    while (slack_ < (1U << 22) && static_cast<double>(slack_) < worst + 4) slack_ *= 2;
    for (std::uint32_t k = 0; k <= size_; ++k) {
      double const slope = rate_[k] * 0x1p-8;
      slope_[k] = static_cast<float>(slope);
      line_[k] = static_cast<float>(k * 0x1p24 + static_cast<double>(slack_) -
                                    static_cast<double>(level_[k]) * slope);
    }
  }

  /// Sets cells() to cells of 2^shift consecutive floats, if no cell has more than two gaps.
  void find_cells(int shift) {
    if (size_ > 8) return;
    leading_bits found;
    std::uint32_t upper = bits_of(1.0F);
    for (int n = 15; n >= 0; --n) {
      std::uint32_t const lower = upper - (1U << shift);
      auto const levels_before = [&](std::uint32_t bits) {
        std::uint8_t k = 0;
        while (k + 1U < size_ && bits_of(level_[k + 1]) < bits) ++k;
        return k;
      };
      std::uint8_t const first = n == 0 ? std::uint8_t{0} : levels_before(lower + 1),
                         last = levels_before(upper);
      if (last > first + 1) return;
      std::uint32_t const cell = (lower >> shift) & 15U;
      found.gap[2 * cell] = first;
      found.gap[2 * cell + 1] = last;
      found.lowest = upper = lower;
    }
    found.shift = shift;
    cells_ = found;
  }

  float level_[capacity] = {};
  float value_[capacity] = {};
  float slope_[capacity] = {};
  float line_[capacity] = {};
  double rate_[capacity] = {};  // 0 for the last level
  leading_bits cells_;
  std::uint32_t size_ = 0;
  std::uint32_t slack_ = 0;
  std::int32_t first_ = 0;   // code of index 0: zero, or -1: minus the first level
  std::int32_t flip_ = 0;    // -1 when code 1 is the largest level
  std::int32_t offset_ = 0;  // size + 2 if reversed
};

/// Checks that levels ascend to 1; the error names the first wrong one.
inline void check_ascending(std::vector<double> const& levels, double above, char const* who) {
  float_environment const exact;
  std::string const start = std::string("globalq: levels::") + who + ": ";
  if (levels.empty() || levels.size() > level_table::limit)
    throw configuration_error(start + std::to_string(levels.size()) + " non-zero levels; give 1 to " +
                              std::to_string(level_table::limit));
  double before = above;
  for (std::size_t k = 0; k < levels.size(); ++k) {
    if (!(static_cast<float>(levels[k]) > static_cast<float>(before)))
      throw configuration_error(start + "level " + std::to_string(levels[k]) + " is not above " +
                                std::to_string(before) + "; levels must ascend strictly (as float32)");
    before = levels[k];
  }
  if (levels.back() != 1.0)
    throw configuration_error(start + "the last level is " + std::to_string(levels.back()) +
                              ", not 1; divide all levels by it");
  if (levels.front() < 0x1p-94)
    throw configuration_error(start + "the first non-zero level is below 2^-94; use a larger one");
}

}  // namespace detail

/// @brief Ascending levels 0 = l_0 < l_1 < ... < l_s = 1; the code of a level is its index.
///
/// @throws configuration_error unless the levels ascend strictly from 0 to 1
/// @source Faghri et al. 2020 (ALQ), section 3
class table : public detail::level_table {
 public:
  /// @param levels  0, l_1, ..., 1; at most 128
  explicit table(std::span<double const> levels) : level_table(checked(levels)) {}
  table(std::initializer_list<double> levels)
      : table(std::span<double const>(levels.begin(), levels.size())) {}

 private:
  static level_table checked(std::span<double const> levels) {
    if (levels.empty() || levels[0] != 0.0)
      throw configuration_error(
          "globalq: levels::table: the first level must be 0; for levels without zero use "
          "levels::symmetric");
    std::vector<double> const magnitudes(levels.begin() + 1, levels.end());
    detail::check_ascending(magnitudes, 0.0, "table");
    return level_table(magnitudes, false, false);
  }
};

/// @brief Levels -1 = -l_s < ... < -l_1 < l_1 < ... < l_s = 1, without zero; the code of +-l_k is +-k.
///
/// A magnitude below l_1 is rounded to minus or plus l_1.
/// @throws configuration_error unless 0 < l_1 < ... < l_s = 1
/// @source Faghri et al. 2020 (ALQ, AMQ), section 3.3 and appendix B.3
class symmetric : public detail::level_table {
 public:
  /// @param levels  l_1, ..., 1; at most 127
  explicit symmetric(std::span<double const> levels) : level_table(checked(levels)) {}
  symmetric(std::initializer_list<double> levels)
      : symmetric(std::span<double const>(levels.begin(), levels.size())) {}

 private:
  static level_table checked(std::span<double const> levels) {
    std::vector<double> const magnitudes(levels.begin(), levels.end());
    detail::check_ascending(magnitudes, 0.0, "symmetric");
    return level_table(magnitudes, true, false);
  }
};

}  // namespace GLOBALQ_ABI::levels
