// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codecs of built-in policies, for one source of a library.

#include "../kernel/host/leaf_code.hpp"
#include "built_in.hpp"
#include "detail/coded_codec.hpp"
#include "detail/host_policies.hpp"

#include <array>

namespace GLOBALQ_ABI::detail {

template <wire::BlockCode Code>
requires(place_of_code<Code> >= 0) struct coded_body<Code> {
  using type = kernel::host::leaf_coded<Code>;
};

using composition_maker = std::unique_ptr<operator_codec> (*)(void const*, void const*, void const*,
                                                              operator_facts const&, method,
                                                              kernel::host_executor const&);
template <class Levels, class Rounding, class None, class... Wires>
constexpr auto makers_of_wires(kernel::host::policy_list<None, Wires...>) {
  return std::array<composition_maker, sizeof...(Wires)>{[](void const* levels, void const* rounding,
                                                            void const* wire, operator_facts const& facts,
                                                            method how, kernel::host_executor const& on) {
    return compose(*static_cast<Levels const*>(levels), *static_cast<Rounding const*>(rounding),
                   *static_cast<Wires const*>(wire), facts, how, on);
  }...};
}
template <class Levels, class None, class... Roundings>
constexpr auto makers_of_roundings(kernel::host::policy_list<None, Roundings...>) {
  return std::array{makers_of_wires<Levels, Roundings>(built_in_wires{})...};
}
template <class None, class... Levels>
constexpr auto makers_of_levels(kernel::host::policy_list<None, Levels...>) {
  return std::array{makers_of_roundings<Levels>(built_in_roundings{})...};
}

template <class None, class... Codes>
std::unique_ptr<operator_codec> make_code_at(kernel::host::policy_list<None, Codes...>, int place,
                                             std::unique_ptr<operator_codec> inner, void const* code,
                                             operator_facts const& facts, resolution const& r,
                                             kernel::host_executor const& on) {
  std::unique_ptr<operator_codec> made;
  int at = 0;
  (void)((at++ == place
              ? (made = make_coded(std::move(inner), *static_cast<Codes const*>(code), facts, r, on), true)
              : false) ||
         ...);
  return made;
}

}  // namespace GLOBALQ_ABI::detail

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::detail {

std::unique_ptr<operator_codec> make_built_in(composition_place which, void const* levels,
                                              void const* rounding, void const* wire,
                                              operator_facts const& facts, method how,
                                              kernel::host_executor const& on) {
  static constexpr auto makers = makers_of_levels(built_in_levels{});
  auto const at = [](int place) { return static_cast<std::size_t>(place); };
  return makers[at(which.levels)][at(which.rounding)][at(which.wire)](levels, rounding, wire, facts, how, on);
}

std::unique_ptr<operator_codec> make_built_in_code(int place, std::size_t code_bytes,
                                                   std::unique_ptr<operator_codec> inner, void const* code,
                                                   operator_facts const& facts, resolution const& r,
                                                   kernel::host_executor const& on) {
  using kernel::host::built_in_codes;
  if (code_bytes == 1)
    return make_code_at(built_in_codes<std::int8_t>{}, place, std::move(inner), code, facts, r, on);
  return make_code_at(built_in_codes<std::int16_t>{}, place, std::move(inner), code, facts, r, on);
}

}  // namespace GLOBALQ_ABI::detail

namespace GLOBALQ_ABI::kernel::host {
value_leaves const& leaves_of_values() { return isa::chosen().leaves().values; }
}  // namespace GLOBALQ_ABI::kernel::host
#endif
