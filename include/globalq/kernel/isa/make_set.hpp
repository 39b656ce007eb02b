// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: builds the leaves of all built-in policies, for the instructions that the source is compiled for.

#include "../host/built_in.hpp"
#include "../host/make_leaves.hpp"
#include "set.hpp"

namespace GLOBALQ_ABI::kernel::host::detail {

template <class Int>
constexpr isa::integer_set<Int> make_integers() {
  constexpr bool nibbles = sizeof(Int) == 1;
  return {[]<class None, class... Levels>(policy_list<None, Levels...>) {
            auto const each_rounding = []<class L, class... Rounding>(std::type_identity<L>,
                                                                      policy_list<None, Rounding...>) {
              return std::array{make_coding_of<L, Rounding, Int, nibbles>()...};
            };
            return std::array{each_rounding(std::type_identity<Levels>{}, built_in_roundings{})...};
          }(built_in_levels{}),
          []<class None, class... Levels>(policy_list<None, Levels...>) {
            return std::array{make_decoding_of<Levels, Int>()...};
          }(built_in_levels{}),
          []<class None, class... Reduce>(policy_list<None, Reduce...>) {
            return std::array{make_adding_of<Reduce, Int>()...};
          }(built_in_reduces{}),
          make_integer_leaves<Int>(),
          [] {
            if constexpr (sizeof(Int) <= 2)
              return []<class None, class... Code>(policy_list<None, Code...>) {
                return std::array{make_code_leaves<Code>()...};
              }(built_in_codes<Int>{});
            else
              return std::array<code_leaves<Int>, isa::block_codes>{};
          }()};
}

constexpr isa::leaf_set make_set() {
  return {make_integers<std::int8_t>(), make_integers<std::int16_t>(), make_integers<std::int32_t>(),
          []<class None, class... Width>(policy_list<None, Width...>) {
            return std::array{make_packing_of<Width>()...};
          }(built_in_widths{}),
          make_value_leaves()};
}

}  // namespace GLOBALQ_ABI::kernel::host::detail
