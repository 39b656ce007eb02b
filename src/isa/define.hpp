// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: defines a set of leaves, in a source compiled for the instructions of GLOBALQ_ISA_SET.
///
/// If several sources of a program compile the same inline function, the linker keeps one. It must not keep one with
/// instructions that only this source may use. This source therefore compiles a separate copy: it includes the headers
/// of policies and loops with another namespace around them, globalq::kernel::isa::<set>. Copies and bodies share only
/// the types of kernel/leaf.hpp and their dependencies (core, random, norm), whose scalar functions are always inlined.
/// A test checks the symbols of each set (tests/isa/symbols.cmake).

#include <globalq/core/concepts.hpp>
#include <globalq/core/error.hpp>
#include <globalq/core/prefetch.hpp>
#include <globalq/core/quad.hpp>
#include <globalq/kernel/isa/set.hpp>

#if !defined(GLOBALQ_COMPILED) || !defined(GLOBALQ_ISA_SET)
#error "globalq: src/isa/define.hpp is for the sources of the library globalq::compiled"
#endif

// all headers included from here on are copies
#undef GLOBALQ_ABI
#define GLOBALQ_ABI globalq::kernel::isa::GLOBALQ_ISA_SET

#include <globalq/kernel/isa/make_set.hpp>

// A set that replaces only some leaves of another set defines improve() instead.
#if !defined(GLOBALQ_ISA_MORE)
namespace GLOBALQ_ABI {
extern leaf_set const all;
constinit leaf_set const all = kernel::host::detail::make_set();
}  // namespace GLOBALQ_ABI
#endif
