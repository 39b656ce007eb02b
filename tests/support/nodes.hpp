// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Nodes of workers, even and uneven.

#include <string>
#include <vector>

namespace support {

/// Splits of n workers: all in one node, each alone, and uneven ones.
inline std::vector<std::vector<int>> splits(int n) {
  std::vector<std::vector<int>> all{{n}, std::vector<int>(static_cast<std::size_t>(n), 1)};
  if (n >= 2) all.push_back({1, n - 1});
  if (n >= 3) all.push_back({n - 1, 1});
  if (n >= 4) all.push_back({1, n - 3, 2});
  if (n >= 6) all.push_back({2, 1, n - 5, 2});
  return all;
}

inline std::string text(std::vector<int> const& split) {
  std::string list;
  for (int size : split) list += std::to_string(size) + ' ';
  return list;
}

}  // namespace support
