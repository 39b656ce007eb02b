// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the built-in policies whose leaves (kernel/host/leaves.hpp) are in the library globalq::compiled.

#include "../core/detail/compiled.hpp"
#include "../kernel/host/leaves.hpp"
#include "../levels/exponential.hpp"
#include "../levels/table.hpp"
#include "../levels/uniform.hpp"
#include "../reduce/exponential.hpp"
#include "../reduce/reduce.hpp"
#include "../rounding/stochastic.hpp"
#include "../wire/integer.hpp"
#include "../wire/packed.hpp"

// Calls leaf(result, function, template arguments) for all leaves of levels on codes of a type.
#define GLOBALQ_LEAVES_OF_CODE_TYPE(leaf, levels, code_type)                                             \
  leaf(coding_leaves<code_type>, coding_of, levels, rounding::stochastic, code_type, false)              \
      leaf(coding_leaves<code_type>, coding_of, levels, rounding::detail::shared_draw, code_type, false) \
          leaf(level_leaves<code_type>, decoding_of, levels, code_type)
#define GLOBALQ_LEAVES_OF_LEVELS(leaf, levels)                                                              \
  leaf(coding_leaves<std::int8_t>, coding_of, levels, rounding::stochastic, std::int8_t, true)              \
      leaf(coding_leaves<std::int8_t>, coding_of, levels, rounding::detail::shared_draw, std::int8_t, true) \
          GLOBALQ_LEAVES_OF_CODE_TYPE(leaf, levels, std::int8_t)                                            \
              GLOBALQ_LEAVES_OF_CODE_TYPE(leaf, levels, std::int16_t)                                       \
                  GLOBALQ_LEAVES_OF_CODE_TYPE(leaf, levels, std::int32_t)
#define GLOBALQ_LEAVES_OF_CODE_TYPES(leaf)                                                    \
  leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<>)                                  \
      leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<1>)                             \
          leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<2>)                         \
              leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<3>)                     \
                  leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<4>)                 \
                      leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<5>)             \
                          leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<6>)         \
                              leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<7>)     \
                                  leaf(wire_leaves<std::int8_t>, packing_of, wire::packed<8>) \
                                      GLOBALQ_LEAVES_OF_ANY_LEVELS(leaf, std::int8_t)         \
                                          GLOBALQ_LEAVES_OF_ANY_LEVELS(leaf, std::int16_t)    \
                                              GLOBALQ_LEAVES_OF_ANY_LEVELS(leaf, std::int32_t)
#define GLOBALQ_LEAVES_OF_ANY_LEVELS(leaf, code_type)                           \
  leaf(reduce_leaves<code_type>, adding_of, reduce::sum, code_type)             \
      leaf(reduce_leaves<code_type>, adding_of, reduce::exponential, code_type) \
          leaf(integer_leaves<code_type>, integers_of, code_type)

// Calls composition(levels, rounding, wire) for all compositions with these levels.
#define GLOBALQ_BUILT_IN_COMPOSITIONS_WITH(composition, levels, rounding)                                   \
  composition(levels, rounding, wire::int8) composition(levels, rounding, wire::int16)                      \
      composition(levels, rounding, wire::int32) composition(levels, rounding, wire::packed<>)              \
          composition(levels, rounding, wire::packed<1>) composition(levels, rounding, wire::packed<2>)     \
              composition(levels, rounding, wire::packed<3>) composition(levels, rounding, wire::packed<4>) \
                  composition(levels, rounding, wire::packed<5>)                                            \
                      composition(levels, rounding, wire::packed<6>)                                        \
                          composition(levels, rounding, wire::packed<7>)                                    \
                              composition(levels, rounding, wire::packed<8>)
#define GLOBALQ_BUILT_IN_COMPOSITIONS(composition, levels)                      \
  GLOBALQ_BUILT_IN_COMPOSITIONS_WITH(composition, levels, rounding::stochastic) \
  GLOBALQ_BUILT_IN_COMPOSITIONS_WITH(composition, levels, rounding::detail::shared_draw)

// Calls code(block code) for all built-in block codes.
#define GLOBALQ_BUILT_IN_CODES(code)                                                              \
  code(wire::elias<std::int8_t>) code(wire::elias<std::int16_t>) code(wire::huffman<std::int8_t>) \
      code(wire::huffman<std::int16_t>) code(wire::sparse<std::int8_t>) code(wire::sparse<std::int16_t>)

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::kernel::host {
#define GLOBALQ_DECLARE_LEAF(result, function, ...) \
  template <>                                       \
  result function<__VA_ARGS__>();
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DECLARE_LEAF, levels::uniform<>)
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DECLARE_LEAF, levels::exponential<>)
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DECLARE_LEAF, levels::detail::level_table)
GLOBALQ_LEAVES_OF_CODE_TYPES(GLOBALQ_DECLARE_LEAF)
#undef GLOBALQ_DECLARE_LEAF
}  // namespace GLOBALQ_ABI::kernel::host
#endif
