// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the leaves that are faster with VBMI and VBMI2 than with AVX-512 alone.

#define GLOBALQ_ISA_SET avx512vbmi
#define GLOBALQ_ISA_MORE
#include "define.hpp"

namespace GLOBALQ_ABI {

template <class Lane>
static void improve_lane(lane_set<Lane>& s) {
  using namespace kernel::host::detail;
  auto const better = make_lane<Lane>();
  for (int levels = 0; levels < 3; ++levels)
    for (int words = 0; words < 2; ++words) s.coding[levels][words] = better.coding[levels][words];
  s.exponential = better.exponential;
}

void improve(leaf_set& s);
void improve(leaf_set& s) {
  using namespace kernel::host::detail;
  improve_lane(s.int8);
  improve_lane(s.int16);
  improve_lane(s.int32);
  s.codes8 = make_codes<std::int8_t>();
  s.codes16 = make_codes<std::int16_t>();
}

}  // namespace GLOBALQ_ABI
