// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the leaves that VBMI and VBMI2 make faster.

#define GLOBALQ_ISA_SET avx512vbmi
#define GLOBALQ_ISA_MORE
#include "define.hpp"

namespace GLOBALQ_ABI {

template <class Int>
static void improve_integers(integer_set<Int>& s) {
  auto const better = kernel::host::detail::make_integers<Int>();
  s.coding = better.coding;
  s.adding = better.adding;
  s.codes = better.codes;
}

void improve(leaf_set& s);
void improve(leaf_set& s) {
  improve_integers(s.int8);
  improve_integers(s.int16);
  improve_integers(s.int32);
}

}  // namespace GLOBALQ_ABI
