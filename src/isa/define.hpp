// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: a set of leaves, defined in a source of its own that is compiled for the instructions GLOBALQ_ISA_SET names.
///
/// Of an inline function that several sources of a program compile the linker keeps one. It must not be one with instructions
/// that only this source may use. So what is compiled here is a copy of its own: the headers of policies and loops are read
/// with another namespace around them, globalq::kernel::isa::<set>. What copies and bodies share are the types of
/// kernel/leaf.hpp and what those stand on (core, random, norm), which have scalar functions that are always inlined. A test
/// looks at the symbols of each set (tests/isa/symbols.cmake).

#include <globalq/core/concepts.hpp>
#include <globalq/core/error.hpp>
#include <globalq/core/prefetch.hpp>
#include <globalq/core/quad.hpp>
#include <globalq/kernel/isa/set.hpp>

#if !defined(GLOBALQ_COMPILED) || !defined(GLOBALQ_ISA_SET)
#error "globalq: src/isa/define.hpp is for the sources of the library globalq::compiled"
#endif

// from here on, all that is read is a copy
#undef GLOBALQ_ABI
#define GLOBALQ_ABI globalq::kernel::isa::GLOBALQ_ISA_SET

#include <globalq/kernel/isa/make_set.hpp>

// A set with some leaves of its own and else those of another defines improve() instead.
#if !defined(GLOBALQ_ISA_MORE)
namespace GLOBALQ_ABI {
extern leaf_set const all;
constinit leaf_set const all = kernel::host::detail::make_set();
}  // namespace GLOBALQ_ABI
#endif
