// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief What nvcc has put into an object: PTX as text, and machine code with the numbers of registers.

#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace emulator {

struct fat_binary {
  std::string ptx;                                 ///< The one of the newest architecture.
  std::map<std::string, std::uint32_t> registers;  ///< Of each kernel with machine code, from ptxas.
};

/// Reads what `__cudaRegisterFatBinary` is given.
/// @throws fault where it has no PTX, or compressed PTX (nvcc --no-compress).
fat_binary read_fat_binary(void const* wrapper);

}  // namespace emulator
