// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: definitions of piece_sizes.hpp.

#include "piece_sizes.hpp"

namespace GLOBALQ_ABI::schedule::detail {

GLOBALQ_DECL std::vector<int> piece_sizes::owners_to_ask(int workers) const {
  std::vector<int> some;
  if (workers <= 64) {
    for (int r = 0; r < workers; ++r) some.push_back(r);
    return some;
  }
  some = {0, 1, 2, 3, workers - 1};
  for (std::uint64_t k : {0U, 1U})
    some.push_back(std::max_element(runs_.begin(), runs_.end(), [k](part_run const& a, part_run const& b) {
                     return a.largest(2, k) < b.largest(2, k);
                   })->first);
  return some;
}

GLOBALQ_DECL void piece_sizes::hold_largest(std::uint64_t first, std::uint64_t count, std::uint64_t times,
                                            slot_sizes& slots) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;  // size, and number of pieces
  for (part_run const& run : runs_)
    for (chunk_run const& c : run.chunks)
      sizes.emplace_back(c.largest, static_cast<std::uint64_t>(run.count) * c.rounds * times);
  std::sort(sizes.rbegin(), sizes.rend());
  for (auto const& [size, pieces] : sizes) {
    std::uint64_t const taken = std::min(count, pieces);
    count -= taken;
    slots.hold(first + count, taken, size);
  }
}

GLOBALQ_DECL piece_sizes::part_run const& piece_sizes::run_of(int part) const {
  return *(std::upper_bound(runs_.begin(), runs_.end(), part,
                            [](int p, part_run const& run) { return p < run.first; }) -
           1);
}

GLOBALQ_DECL void slot_sizes::hold(std::uint64_t slot, std::uint64_t count, std::uint64_t bytes) {
  for (; count != 0 && slot < shared; ++slot, --count) first_[slot] = std::max(first_[slot], bytes);
  others_ = capped_sum(others_, capped_product(count, bytes));
}

}  // namespace GLOBALQ_ABI::schedule::detail
