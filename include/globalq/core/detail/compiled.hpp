// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: whether a source compiles what it uses of globalq (the default), or the library globalq::compiled has done so.
///
/// Functions that are no templates are declared in a header x.hpp and defined in x-inl.hpp, which x.hpp includes unless
/// GLOBALQ_COMPILED is defined. Sources of one program are all of one kind.

#include "abi.hpp"

#if defined(GLOBALQ_COMPILED)
#define GLOBALQ_DECL
#else
#define GLOBALQ_DECL inline
#endif

/// Marks a host function that is called and not inlined, though it is short: one that many places call, none of which is hot.
#if defined(__GNUC__)
#define GLOBALQ_CALLED [[gnu::noinline]] inline
#else
#define GLOBALQ_CALLED inline
#endif

// A program with sources of both kinds would have every function twice. The linker refuses it, for the name below is of a thread
// in sources that compile all, and of the program in the library and in sources that use it.
#if defined(__GNUC__) && defined(__ELF__)
extern "C" {
#if defined(GLOBALQ_COMPILED)
extern char const globalq_header_only_and_compiled_sources_in_one_program;
#else
[[gnu::used]] inline thread_local char globalq_header_only_and_compiled_sources_in_one_program = 0;
#endif
}
#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::detail {
[[gnu::used]] static char const* const all_sources_use_the_library =
    &globalq_header_only_and_compiled_sources_in_one_program;
}  // namespace GLOBALQ_ABI::detail
#endif
#endif
