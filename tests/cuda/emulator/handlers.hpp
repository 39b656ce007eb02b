// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Who executes what: each gives the handler of an opcode of its group, or null.

#pragma once

#include "program.hpp"

namespace emulator {

/// Arithmetic and bits (opcodes.cpp).
handler arithmetic_handler(instruction& i, opcode const& op);

/// Comparisons, predicates, choices (predicate_opcodes.cpp).
handler predicate_handler(instruction& i, opcode const& op);

/// Moves and conversions (move_opcodes.cpp).
handler move_handler(instruction& i, opcode const& op);

/// Loads, stores and atomic operations (memory_opcodes.cpp).
handler memory_handler(instruction& i, opcode const& op);

/// Branches, ends, barriers and what a warp's lanes exchange (control_opcodes.cpp).
handler control_handler(instruction& i, opcode const& op);

}  // namespace emulator
