// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: macros for header-only use (the default) and for the library globalq::compiled.
///
/// Functions that are not templates are declared in a header x.hpp and defined in x-inl.hpp, which x.hpp includes
/// unless GLOBALQ_COMPILED is defined. All sources of a program must define it, or none.

#include "abi.hpp"

#if defined(GLOBALQ_COMPILED)
#define GLOBALQ_DECL
#else
#define GLOBALQ_DECL inline
#endif

/// Marks a short host function that must not be inlined, because many cold places call it.
#if defined(__GNUC__)
#define GLOBALQ_CALLED [[gnu::noinline]] inline
#else
#define GLOBALQ_CALLED inline
#endif

// A program with sources of both kinds would have every function twice. The linker refuses it, because the variable
// below is thread-local in header-only sources, and not in the library and the sources that use it.
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
