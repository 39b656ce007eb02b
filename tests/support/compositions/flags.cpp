// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: says with what flags the compositions were compiled.

#include "tests/support/compositions.hpp"

namespace support {

template <compiler_flags>
void compositions_compiled_with() {}
template void compositions_compiled_with<compiler_flags{}>();

}  // namespace support
