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

// Calls leaf(result, function, template arguments) for all leaves of levels on lanes of a type.
#define GLOBALQ_LEAVES_OF_LANE(leaf, levels, lane)                                             \
  leaf(coding_leaves<lane>, coding_of, levels, rounding::stochastic, lane, false)              \
      leaf(coding_leaves<lane>, coding_of, levels, rounding::detail::shared_draw, lane, false) \
          leaf(level_leaves<lane>, decoding_of, levels, lane)
#define GLOBALQ_LEAVES_OF_LEVELS(leaf, levels)                                                              \
  leaf(coding_leaves<std::int8_t>, coding_of, levels, rounding::stochastic, std::int8_t, true)              \
      leaf(coding_leaves<std::int8_t>, coding_of, levels, rounding::detail::shared_draw, std::int8_t, true) \
          GLOBALQ_LEAVES_OF_LANE(leaf, levels, std::int8_t)                                                 \
              GLOBALQ_LEAVES_OF_LANE(leaf, levels, std::int16_t)                                            \
                  GLOBALQ_LEAVES_OF_LANE(leaf, levels, std::int32_t)
#define GLOBALQ_LEAVES_OF_LANES(leaf)                                                         \
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
#define GLOBALQ_LEAVES_OF_ANY_LEVELS(leaf, lane)                \
  leaf(reduce_leaves<lane>, adding_of, reduce::sum, lane) leaf( \
      reduce_leaves<lane>, adding_of, reduce::exponential, lane) leaf(lane_leaves<lane>, lanes_of, lane)

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
GLOBALQ_LEAVES_OF_LANES(GLOBALQ_DECLARE_LEAF)
#undef GLOBALQ_DECLARE_LEAF
}  // namespace GLOBALQ_ABI::kernel::host
#endif
