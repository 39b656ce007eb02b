// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the built-in policies whose leaves and compositions the library globalq::compiled holds: their only list.
///
/// Instruction sets, tables, the library's definitions and what sources leave to the library follow from it. Policies that
/// share kernels have one entry, see operator/kernels.hpp. The list consists of macros because instruction sets are copies
/// of the headers in namespaces of their own (src/isa/define.hpp).

#define GLOBALQ_BUILT_IN_LEVELS(policy) \
  policy(levels::uniform<>) policy(levels::exponential<>) policy(levels::detail::level_table)
#define GLOBALQ_BUILT_IN_ROUNDINGS(policy) \
  policy(rounding::stochastic) policy(rounding::detail::shared_draw) policy(rounding::correlated)
#define GLOBALQ_BUILT_IN_REDUCES(policy) policy(reduce::sum) policy(reduce::exponential)
/// Of four bits and others, by their bits; 0: given at run time.
#define GLOBALQ_BUILT_IN_WIDTHS(policy)                                                               \
  policy(wire::packed<>) policy(wire::packed<1>) policy(wire::packed<2>) policy(wire::packed<3>)      \
      policy(wire::packed<4>) policy(wire::packed<5>) policy(wire::packed<6>) policy(wire::packed<7>) \
          policy(wire::packed<8>)
/// Block codes: templates over the code type, of 8 or 16 bits.
#define GLOBALQ_BUILT_IN_CODES(policy) policy(wire::elias) policy(wire::huffman) policy(wire::sparse)

/// How many a list names.
#define GLOBALQ_BUILT_IN_ONE(...) +1
#define GLOBALQ_BUILT_IN_COUNT(list) (0 list(GLOBALQ_BUILT_IN_ONE))
