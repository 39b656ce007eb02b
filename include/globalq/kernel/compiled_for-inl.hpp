// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the symbols that a compiled library defines for its users.

#include "compiled_for.hpp"

#if defined(GLOBALQ_COMPILED)
char const globalq_header_only_and_compiled_sources_in_one_program = 0;
char const GLOBALQ_ANCHOR = 0;
#endif
