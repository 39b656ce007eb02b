// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A kernel decoded: dense instructions over few registers, with the calls of functions expanded.

#pragma once

#include "ptx.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace emulator {

struct step;
struct instruction;

/// Executes an instruction for the active lanes of a step.
using handler = void (*)(step&, instruction const&);

inline constexpr uint32_t no_register = 0xffff'ffff;
inline constexpr uint32_t constant_bit = 0x8000'0000;  ///< Set in the index of a constant.

enum class space : uint8_t { generic, global, shared, local, parameter };

/// Where generic addresses of a space begin; ld.shared and ld.local take offsets into theirs.
constexpr uint64_t window_of(space s) { return (static_cast<uint64_t>(s) - 1) << 61; }
constexpr space space_of(uint64_t generic_address) {
  return static_cast<space>(1 + std::min<uint64_t>(generic_address >> 61, 3));
}

/// How undefined bits of sources reach the result.
enum class spread : uint8_t {
  moved,    ///< The operation moves bits of its first `moved` sources; one in another makes all undefined.
  bitwise,  ///< Where it makes a difference what an undefined bit is.
  upward    ///< To all higher bits, as sums do.
};

/// Where control goes from an instruction.
enum class flow : uint8_t { on, branches, ends };

struct instruction {
  handler run = nullptr;
  std::array<uint32_t, 4> to{no_register, no_register, no_register, no_register};
  std::array<uint32_t, 5> from{no_register, no_register, no_register, no_register, no_register};
  uint32_t guard = no_register;  ///< `@p`
  bool guard_negated = false;

  value_type type{};         ///< Of the operation; the first that it names.
  value_type second_type{};  ///< The second: the source of a conversion.
  uint64_t width = 0;        ///< The bits of the register that takes the result; a predicate has one.
  uint8_t sources = 0;       ///< How many of `from` are used.
  uint8_t results = 0;       ///< How many of `to` are used.
  space where = space::generic;
  enum flow flow = flow::on;
  spread undefined = spread::moved;
  uint8_t moved = 0;
  uint8_t variant = 0;         ///< What the handler makes of it: a comparison, an atomic operation, ...
  bool synchronizing = false;  ///< Volatile, relaxed, atomic: ordered by itself, no race.
  bool releasing = false;      ///< A fence comes first.
  uint64_t offset = 0;         ///< Of an address.
  uint32_t target = 0;         ///< Of a branch.
  std::string_view text{};     ///< As it was written.
};

/// The words of an opcode: `ld.global.v2.u32` is `ld` with three modifiers.
struct opcode {
  std::string_view name;
  std::vector<std::string_view> modifiers;

  bool has(std::string_view word) const;
};

/// The special registers, in the order of the values that a lane has of them (machine.cpp).
inline constexpr std::array<std::string_view, 20> special_registers{
    "%tid.x",       "%tid.y",       "%tid.z",       "%ntid.x",      "%ntid.y",      "%ntid.z", "%ctaid.x",
    "%ctaid.y",     "%ctaid.z",     "%nctaid.x",    "%nctaid.y",    "%nctaid.z",    "%laneid", "%warpid",
    "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%clock64"};

struct parameter {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct program {
  std::string name;
  std::vector<instruction> code;
  uint32_t registers = 0;           ///< Values of 64 bits a lane.
  uint32_t unwritten = 0;           ///< So many of the first may be read before they are written.
  std::vector<uint64_t> constants;  ///< Their indices follow the registers'.
  std::vector<std::pair<std::size_t, uint32_t>>
      specials;  ///< Of `special_registers`, and the registers that hold them.
  std::vector<parameter> parameters;
  uint64_t parameter_bytes = 0;
  uint64_t local_bytes = 0;   ///< A lane.
  uint64_t shared_bytes = 0;  ///< A block, without dynamic ones.
};

/// Where the variables of a module in global and constant memory are.
using variable_addresses = std::map<std::string, uint64_t, std::less<>>;

/// Decodes an entry of a module.
/// @throws fault where the text is not understood; an opcode that is not known is a fault only when it is executed.
program decode(module_text const& module, function_text const& entry, variable_addresses const& addresses);

/// Chooses the handler of an instruction whose operands are set (control_opcodes.cpp).
void choose_handler(instruction& i, opcode const& op);

/// The handlers of a group of opcodes, each in a file of its name; null where the group has none.
/// @{
handler arithmetic_handler(instruction& i, opcode const& op);
handler move_handler(instruction& i, opcode const& op);
handler memory_handler(instruction& i, opcode const& op);
handler control_handler(instruction& i, opcode const& op);
/// @}

/// Renames the virtual registers of a program into as few as are alive at a time (registers.cpp).
void allocate_registers(program& p, uint32_t virtual_registers);

}  // namespace emulator
