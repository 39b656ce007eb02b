// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: lengths of the words of the best prefix code whose words are not longer than a limit.

#include "../../core/arithmetic.hpp"

#include <algorithm>
#include <span>

namespace GLOBALQ_ABI::wire::detail {

/// @brief Package-merge: of each of @c Limit rows, symbols and pairs of the row before are merged by weight; of the last
///        row the first 2 m - 2 are taken. How often a symbol was taken is the length of its word.
///
/// Of a row only which of its items are symbols is kept: those that are taken are the first ones.
/// @tparam Most   symbols
/// @tparam Limit  bits of a word; 2^Limit >= Most
/// @complexity O(m log m + Limit m)
/// @source Larmore and Hirschberg 1990
template <int Most, int Limit>
class package_merge {
 public:
  /// @param lengths  0 for what does not occur. With less than two symbols that occur, their neighbors get words too:
  ///                 the code is always complete.
  /// @pre counts and lengths have the same size, 2 to Most
  void operator()(std::span<std::uint64_t const> counts, std::span<std::uint8_t> lengths) {
    int const symbols = static_cast<int>(counts.size());
    std::fill(lengths.begin(), lengths.end(), std::uint8_t{0});
    std::uint64_t largest = 0;
    int m = 0;
    for (int i = 0; i < symbols; ++i)
      if (counts[static_cast<std::size_t>(i)] != 0) {
        order_[m++] = i;
        largest = std::max(largest, counts[static_cast<std::size_t>(i)]);
      }
    if (m < 2) {
      int const first = m == 0 ? symbols / 2 : order_[0],
                second = first + 1 < symbols ? first + 1 : first - 1;
      lengths[static_cast<std::size_t>(first)] = lengths[static_cast<std::size_t>(second)] = 1;
      return;
    }
    // an item holds each symbol at most once a row: sums stay below 2^60
    int shift = 0;
    while ((largest >> shift) >= std::uint64_t{1} << 44) ++shift;
    auto const weight = [&](int i) {
      return std::max(counts[static_cast<std::size_t>(i)] >> shift, std::uint64_t{1});
    };
    std::sort(order_, order_ + m,
              [&](int a, int b) { return weight(a) != weight(b) ? weight(a) < weight(b) : a < b; });
    for (int k = 0; k < m; ++k) symbol_[k] = weight(order_[k]);

    int items = 0;
    for (auto& is_symbol : is_symbol_) {
      int const pairs = items / 2;
      for (int k = 0; k < pairs; ++k) pair_[k] = row_[2 * k] + row_[2 * k + 1];
      items = m + pairs;
      for (int k = 0, s = 0, p = 0; k < items; ++k) {
        bool const takes_symbol = p == pairs || (s < m && symbol_[s] <= pair_[p]);
        is_symbol[k] = takes_symbol;
        row_[k] = takes_symbol ? symbol_[s++] : pair_[p++];
      }
    }
    int take = 2 * m - 2;
    for (int level = Limit - 1; level >= 0; --level) {
      auto const taken = static_cast<int>(std::count(is_symbol_[level], is_symbol_[level] + take, true));
      for (int k = 0; k < taken; ++k) ++lengths[static_cast<std::size_t>(order_[k])];
      take = 2 * (take - taken);
    }
  }

 private:
  int order_[Most];
  std::uint64_t symbol_[Most], pair_[Most], row_[2 * Most];
  bool is_symbol_[Limit][2 * Most];
};

}  // namespace GLOBALQ_ABI::wire::detail
