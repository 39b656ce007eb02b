// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: the median and quartiles of repeated measurements, and the slowest worker's times.

#include "../transport/collectives.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief The median of measurements, and their quartiles: half of the measurements are between them.
struct measured {
  double value = 0, low = 0, high = 0;
  /// Half the distance of the quartiles, relative to the median.
  double spread() const { return value == 0 ? 0 : (high - low) / (2 * value); }
};

namespace detail {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Median and quartiles.
inline measured quartiles(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  auto const at = [&](double q) {
    double const place = q * static_cast<double>(all.size() - 1);
    std::size_t const k = static_cast<std::size_t>(place);
    std::size_t const next = std::min(k + 1, all.size() - 1);
    return all[k] + (place - static_cast<double>(k)) * (all[next] - all[k]);
  };
  return {at(0.5), at(0.25), at(0.75)};
}

/// The longest times of all workers, element by element.
template <Transport T>
std::vector<double> slowest(T& t, std::vector<double> mine) {
  struct numbers {
    std::vector<double> own, all;
  };
  std::size_t const n = static_cast<std::size_t>(t.size()), count = mine.size();
  auto const memory = std::make_shared<numbers>(numbers{std::move(mine), std::vector<double>(n * count)});
  transport::keeping(t, memory, [&] {
    transport::allgather(t, std::as_bytes(std::span(memory->own)),
                         std::as_writable_bytes(std::span(memory->all)));
  });
  std::vector<double> most(count, 0.0);
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = 0; i < count; ++i) most[i] = std::max(most[i], memory->all[r * count + i]);
  return most;
}

}  // namespace detail

}  // namespace GLOBALQ_ABI::model
