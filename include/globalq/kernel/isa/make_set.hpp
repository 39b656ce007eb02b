// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: builds the leaves of all built-in policies, for the instructions that the source is compiled for.

#include "../../levels/exponential.hpp"
#include "../../levels/table.hpp"
#include "../../levels/uniform.hpp"
#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "../../rounding/shared_draw.hpp"
#include "../../rounding/stochastic.hpp"
#include "../../wire/elias.hpp"
#include "../../wire/huffman.hpp"
#include "../../wire/packed.hpp"
#include "../../wire/sparse.hpp"
#include "../host/make_leaves.hpp"
#include "set.hpp"

namespace GLOBALQ_ABI::kernel::host::detail {

template <class Levels, class Int>
constexpr void add_levels(isa::integer_set<Int>& s, isa::level_kind of) {
  auto const k = static_cast<int>(of);
  constexpr bool nibbles = std::is_same_v<Int, std::int8_t>;
  s.coding[k][static_cast<int>(isa::word_kind::per_coordinate)] =
      make_coding_of<Levels, rounding::stochastic, Int, nibbles>();
  s.coding[k][static_cast<int>(isa::word_kind::shared)] =
      make_coding_of<Levels, rounding::detail::shared_draw, Int, nibbles>();
  s.decoding[k] = make_decoding_of<Levels, Int>();
}

template <class Int>
constexpr isa::integer_set<Int> make_integers() {
  isa::integer_set<Int> s{};
  add_levels<levels::uniform<>>(s, isa::level_kind::uniform);
  add_levels<levels::exponential<>>(s, isa::level_kind::exponential);
  add_levels<levels::detail::level_table>(s, isa::level_kind::table);
  s.sum = make_adding_of<reduce::sum, Int>();
  s.exponential = make_adding_of<reduce::exponential, Int>();
  s.any = make_integer_leaves<Int>();
  if constexpr (sizeof(Int) <= 2) {
    s.elias = make_code_leaves<wire::elias<Int>>();
    s.huffman = make_code_leaves<wire::huffman<Int>>();
    s.sparse = make_code_leaves<wire::sparse<Int>>();
  }
  return s;
}

constexpr isa::leaf_set make_set() {
  return {make_integers<std::int8_t>(),
          make_integers<std::int16_t>(),
          make_integers<std::int32_t>(),
          {make_packing_of<wire::packed<>>(), make_packing_of<wire::packed<1>>(),
           make_packing_of<wire::packed<2>>(), make_packing_of<wire::packed<3>>(),
           make_packing_of<wire::packed<4>>(), make_packing_of<wire::packed<5>>(),
           make_packing_of<wire::packed<6>>(), make_packing_of<wire::packed<7>>(),
           make_packing_of<wire::packed<8>>()},
          make_value_leaves()};
}

}  // namespace GLOBALQ_ABI::kernel::host::detail
