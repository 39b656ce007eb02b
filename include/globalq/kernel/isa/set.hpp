// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the leaves of built-in policies for an instruction set, and the set that a library uses.

#include "../../core/detail/compiled.hpp"
#include "../leaf.hpp"

#include <span>

namespace GLOBALQ_ABI::kernel::isa {

/// The levels, and the words of the rounding, that a leaf is for.
enum class level_kind { uniform, exponential, table };
enum class word_kind { per_coordinate, shared };

/// The leaves for a code type.
template <class Int>
struct integer_set {
  coding_leaves<Int> coding[3][2];  ///< by level_kind and word_kind
  level_leaves<Int> decoding[3];    ///< by level_kind
  reduce_leaves<Int> sum, exponential;
  integer_leaves<Int> any;
  code_leaves<Int> elias, huffman, sparse;  ///< null for codes of 32 bits
};

/// All leaves of built-in policies.
struct leaf_set {
  integer_set<std::int8_t> int8;
  integer_set<std::int16_t> int16;
  integer_set<std::int32_t> int32;
  wire_leaves<std::int8_t> packed[9];  ///< by bits; 0: given at run time
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
