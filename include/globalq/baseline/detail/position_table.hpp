// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: THC's table: the positions on a fine even grid that the indices represent.

#include "../../core/float_environment.hpp"
#include "../../train/learn/truncated_normal.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::baseline::detail {

/// The t with P(|Z| > t) = share for a standard normal Z.
/// @param share  in (0, 1]
inline double two_sided_quantile(double share) {
  float_environment const exact;
  double low = 0, high = 40;
  for (int k = 0; k < 100; ++k) {
    double const t = 0.5 * (low + high);
    (std::erfc(t * (0.5 * std::numbers::sqrt2)) > share ? low : high) = t;
  }
  return 0.5 * (low + high);
}

/// @brief 2^bits symmetric positions on the grid 0 .. granularity, with 0 and granularity among them.
///
/// Among such tables, it has the least variance for a normal variable truncated to [-t, t], the ends of the grid, if
/// each value is rounded without bias to one of its two neighbors in the table.
/// @complexity O(2^bits granularity^2) to construct, by dynamic programming over the lower half
/// @source     Li et al. 2024 (THC): the objective; the tables in the authors' code are symmetric as well
class position_table {
 public:
  /// @pre 2 <= bits <= 8, 2^bits - 1 <= granularity < 2^15, t > 0
  position_table(int bits, int granularity, double t)
      : bits_(bits),
        granularity_(static_cast<std::uint32_t>(granularity)),
        positions_(std::size_t{1} << bits),
        indices_(granularity_ + 1),
        cells_(granularity_ + 1, granularity_ | 1U << 16) {
    fill_half(t);
    std::size_t const last = positions_.size() - 1;
    for (std::size_t z = 0; z <= last; ++z) {
      if (2 * z > last) positions_[z] = static_cast<std::uint16_t>(granularity_ - positions_[last - z]);
      indices_[positions_[z]] = static_cast<std::uint16_t>(z);
    }
    for (std::size_t z = 0; z < last; ++z) {
      std::uint32_t const low = positions_[z], width = positions_[z + 1] - low;
      for (std::uint32_t p = low; p < low + width; ++p) cells_[p] = low | width << 16;
    }
  }

  int bits() const { return bits_; }
  std::uint32_t granularity() const { return granularity_; }
  /// By index, ascending.
  std::span<std::uint16_t const> positions() const { return positions_; }
  /// By position; valid for positions in the table.
  std::span<std::uint16_t const> indices() const { return indices_; }
  /// By integer part of a place on the grid: the neighbor below, plus 2^16 times the distance of the neighbors.
  std::span<std::uint32_t const> cells() const { return cells_; }

 private:
  /// Places of the grid's lower half, by their distance from the middle; symmetry covers the other half.
  struct place {
    double at;
    learn::moments below;  ///< of (0, at] under the normal density
  };

  /// The variance of the values between two places: E (x - near)(far - x).
  static double between(place const& far, place const& near) {
    learn::moments const m = far.below - near.below;
    return (far.at + near.at) * m.first - far.at * near.at * m.mass - m.second;
  }
  /// The variance of the values between the middle and a place, if the place and its mirror image are neighbors.
  static double around(place const& p) { return p.at * p.at * p.below.mass - p.below.second; }

  void fill_half(double t) {
    float_environment const exact;
    std::size_t const half = positions_.size() / 2, places = (granularity_ + 1) / 2;
    std::vector<place> grid(places);
    for (std::size_t k = 0; k < places; ++k) {
      double const at = t * (1 - 2 * static_cast<double>(k) / granularity_);
      grid[k] = {at, learn::detail::normal_moments(0, 1, at)};
    }
    // best[k]: the least variance beyond place k if index z is there; from[z][k]: the place of index z - 1 in that case
    constexpr double never = std::numeric_limits<double>::max();
    std::vector<double> best(places, never), next(places);
    std::vector<std::vector<std::uint16_t>> from(half, std::vector<std::uint16_t>(places));
    best[0] = 0;
    for (std::size_t z = 1; z < half; ++z) {
      std::fill(next.begin(), next.end(), never);
      for (std::size_t k = z; k < places; ++k)
        for (std::size_t j = z - 1; j < k; ++j)
          if (double const sum = best[j] + between(grid[j], grid[k]); sum < next[k]) {
            next[k] = sum;
            from[z][k] = static_cast<std::uint16_t>(j);
          }
      best.swap(next);
    }
    std::size_t at = half - 1;
    for (std::size_t k = half; k < places; ++k)
      if (best[k] + around(grid[k]) < best[at] + around(grid[at])) at = k;
    for (std::size_t z = half; z-- > 0; at = from[z][at]) positions_[z] = static_cast<std::uint16_t>(at);
  }

  int bits_;
  std::uint32_t granularity_;
  std::vector<std::uint16_t> positions_, indices_;
  std::vector<std::uint32_t> cells_;
};

}  // namespace GLOBALQ_ABI::baseline::detail
