// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the leaves that are faster with VBMI and VBMI2 than with AVX-512 alone.

#define GLOBALQ_ISA_SET avx512vbmi
#define GLOBALQ_ISA_MORE
#include "define.hpp"

namespace GLOBALQ_ABI {

void improve(leaf_set& s);
void improve(leaf_set& s) {
  using namespace kernel::host::detail;
  s.int8.exponential = make_adding_of<reduce::exponential, std::int8_t>();
  s.codes8.elias = make_code_leaves<wire::elias<std::int8_t>>();
  s.codes8.sparse = make_code_leaves<wire::sparse<std::int8_t>>();
  s.codes16.elias = make_code_leaves<wire::elias<std::int16_t>>();
  s.codes16.sparse = make_code_leaves<wire::sparse<std::int16_t>>();
}

}  // namespace GLOBALQ_ABI
