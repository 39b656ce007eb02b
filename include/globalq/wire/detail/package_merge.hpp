// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: codeword lengths of an optimal prefix code with limited length.

#include "../../core/arithmetic.hpp"

#include <algorithm>
#include <span>

namespace GLOBALQ_ABI::wire::detail {

/// @brief Package-merge: each of @c Limit rows merges the symbols and the pairs of the previous row by weight; the
///        first 2 m - 2 items of the last row are taken. A codeword is as long as its symbol is taken often.
///
/// A row stores only which of its items are symbols, because the first ones are taken.
/// @tparam Most   the most symbols
/// @tparam Limit  the most bits of a codeword; 2^Limit >= Most
/// @complexity O(m log m + Limit m)
/// @source Larmore and Hirschberg 1990
template <int Most, int Limit>
class package_merge {
 public:
  /// @param lengths  0 for symbols that do not occur. If fewer than two occur, neighbors get codewords too, so the code
  ///                 is always complete.
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
    // an item contains each symbol at most once per row, so sums stay below 2^60
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
