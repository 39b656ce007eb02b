// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the compositions and codes that the library globalq::compiled makes.

#include "../core/detail/compiled.hpp"
#include "../kernel/host/built_in.hpp"
#include "../wire/integer.hpp"
#include "detail/operator_codec.hpp"
#include "detail/resolve.hpp"

#include <memory>

namespace GLOBALQ_ABI::detail {

using built_in_levels = kernel::host::built_in_levels;
using built_in_roundings = kernel::host::built_in_roundings;
/// Codes in integers, and of any width.
using built_in_wires = kernel::host::built_in_widths::after<wire::int8, wire::int16, wire::int32>;

/// The place of a composition in the lists; of none if a number is -1.
struct composition_place {
  int levels, rounding, wire;
  constexpr bool built_in() const { return levels >= 0 && rounding >= 0 && wire >= 0; }
};
template <class Levels, class Rounding, class Wire>
inline constexpr composition_place place_of{
    built_in_levels::place<Levels>(), built_in_roundings::place<Rounding>(), built_in_wires::place<Wire>()};
template <class Code>
inline constexpr int place_of_code =
    kernel::host::built_in_codes<typename Code::code_type>::template place<Code>();

#if defined(GLOBALQ_COMPILED)
/// The codec of a built-in composition; pointers to its policies.
std::unique_ptr<operator_codec> make_built_in(composition_place which, void const* levels,
                                              void const* rounding, void const* wire,
                                              operator_facts const& facts, method how,
                                              kernel::host_executor const& on);
/// The codec of a built-in block code, around that with an integer wire.
/// @param place  of the code in the list of its code type, which has @p code_bytes
std::unique_ptr<operator_codec> make_built_in_code(int place, std::size_t code_bytes,
                                                   std::unique_ptr<operator_codec> inner, void const* code,
                                                   operator_facts const& facts, resolution const& r,
                                                   kernel::host_executor const& on);
#endif

}  // namespace GLOBALQ_ABI::detail
