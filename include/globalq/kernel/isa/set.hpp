// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the leaves of built-in policies for an instruction set, and the set that a library uses.

#include "../../core/detail/compiled.hpp"
#include "../built_in.hpp"
#include "../leaf.hpp"

#include <array>
#include <span>

namespace GLOBALQ_ABI::kernel::isa {

/// One entry for each built-in policy, in the order of the list.
inline constexpr std::size_t schemes = GLOBALQ_BUILT_IN_COUNT(GLOBALQ_BUILT_IN_LEVELS),
                             roundings = GLOBALQ_BUILT_IN_COUNT(GLOBALQ_BUILT_IN_ROUNDINGS),
                             reduces = GLOBALQ_BUILT_IN_COUNT(GLOBALQ_BUILT_IN_REDUCES),
                             widths = GLOBALQ_BUILT_IN_COUNT(GLOBALQ_BUILT_IN_WIDTHS),
                             block_codes = GLOBALQ_BUILT_IN_COUNT(GLOBALQ_BUILT_IN_CODES);

/// The leaves for a code type.
template <class Int>
struct integer_set {
  std::array<std::array<coding_leaves<Int>, roundings>, schemes> coding;
  std::array<level_leaves<Int>, schemes> decoding;
  std::array<reduce_leaves<Int>, reduces> adding;
  integer_leaves<Int> any;
  std::array<code_leaves<Int>, block_codes> codes;  ///< null for codes of 32 bits
};

/// All leaves of built-in policies.
struct leaf_set {
  integer_set<std::int8_t> int8;
  integer_set<std::int16_t> int16;
  integer_set<std::int32_t> int32;
  std::array<wire_leaves<std::int8_t>, widths> packed;  ///< by bits; 0: given at run time
  value_leaves values;
};

/// An instruction set that the library was built with.
struct candidate {
  char const* name;  ///< as in GLOBALQ_ISA and GLOBALQ_ISA_SETS
  leaf_set const& (*leaves)();
  bool (*runs_here)();  ///< whether the processor supports it and the system saves its registers
};

/// The sets that this library was built with, the slowest first.
std::span<candidate const> candidates();

/// The set that calls use: the last candidate that runs here, or the one that the environment variable GLOBALQ_ISA
/// names. It is chosen once per process. All sets give the same bits, so workers may use different ones.
/// @throws configuration_error if GLOBALQ_ISA names an unknown set or one that does not run here, or if none runs here
candidate const& chosen();

/// The leaves of the chosen set for a code type.
template <class Int>
integer_set<Int> const& chosen_integers() {
  leaf_set const& all = chosen().leaves();
  if constexpr (sizeof(Int) == 1)
    return all.int8;
  else if constexpr (sizeof(Int) == 2)
    return all.int16;
  else
    return all.int32;
}

}  // namespace GLOBALQ_ABI::kernel::isa
