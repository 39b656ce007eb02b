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
  for (int levels = 0; levels < 3; ++levels)
    for (int words = 0; words < 2; ++words) s.coding[levels][words] = better.coding[levels][words];
  s.exponential = better.exponential;
  s.elias = better.elias;
  s.huffman = better.huffman;
  s.sparse = better.sparse;
}

void improve(leaf_set& s);
void improve(leaf_set& s) {
  improve_integers(s.int8);
  improve_integers(s.int16);
  improve_integers(s.int32);
}

}  // namespace GLOBALQ_ABI
