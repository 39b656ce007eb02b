// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: scalar parts of the vector loops.

#include "../../core/arithmetic.hpp"

namespace GLOBALQ_ABI::kernel::detail {

/// Adds the codes whose bit in @p set is set, by the scalar rule.
/// @param words  unrotated; four codes share one
template <class Rule>
void add_lanes(std::int8_t const* a, std::int8_t const* b, std::uint32_t const* words, std::uint64_t set,
               std::int8_t* sum) {
  for (; set != 0; set &= set - 1) {
    int const i = __builtin_ctzll(set);
    sum[i] = Rule::add(a[i], b[i], rotate_left(words[i / 4], 8 * (i % 4)));
  }
}

/// The bitwise or of all bytes.
template <int Count>
std::uint32_t bits_of_bytes(std::uint64_t const (&lanes)[Count]) {
  std::uint64_t bits = 0;
  for (std::uint64_t l : lanes) bits |= l;
  bits |= bits >> 32;
  bits |= bits >> 16;
  return static_cast<std::uint32_t>((bits | bits >> 8) & 0xffU);
}

}  // namespace GLOBALQ_ABI::kernel::detail
