// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Runs kernels: modules of PTX and launches.

#pragma once

#include "memory.hpp"
#include "program.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace emulator {

/// What was executed, summed over threads.
struct counts {
  uint64_t instructions = 0;
  uint64_t warp_instructions = 0;  ///< Instructions that the interpreter executed, each for several threads.
  uint64_t loads = 0;              ///< From global memory, and the same of stores and their bytes.
  uint64_t stores = 0;
  uint64_t loaded_bytes = 0;
  uint64_t stored_bytes = 0;
  uint64_t atomics = 0;
  uint64_t barriers = 0;  ///< Of blocks.
};

/// PTX that is loaded: its variables have addresses. Kernels are decoded when they are first asked for.
class loaded_module {
 public:
  /// @throws fault where the text is not understood.
  loaded_module(std::string text, memory& in);

  /// @throws fault where there is none of that name.
  program const& kernel(std::string const& name);

  /// The address of a variable in global or constant memory. @throws fault where there is none of that name.
  uint64_t address_of(std::string_view name) const;

 private:
  module_text text_;
  variable_addresses addresses_;
  std::map<std::string, program> programs_;
};

struct dimensions {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct launch {
  dimensions grid{};
  dimensions block{};
  std::span<std::byte const> parameters{};      ///< As `program::parameters` lays them out.
  uint64_t dynamic_shared = 0;                  ///< Bytes a block.
  uint64_t most_instructions = 20'000'000'000;  ///< Of all threads; a launch that needs more is a fault.
};

/// Runs all blocks, one after the other.
/// @throws fault with kernel, block, thread and instruction: see README.md for what is checked.
counts run(program const& kernel, launch const& how, memory& on);

}  // namespace emulator
