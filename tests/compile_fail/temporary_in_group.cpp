// expect-error: globalq: the vector is a temporary
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A group refers to its vectors, so they need names; views of vectors pass.

#include <globalq/call/vector_group.hpp>

#include <span>
#include <vector>

namespace gq = globalq;

void collect(gq::vector_group& group, std::vector<float>& x) {
  group.add(x).add(std::span(x).first(1), Kokkos::View<float*, Kokkos::HostSpace>("y", 1));
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  group.add(std::vector<float>(3));
#endif
}
