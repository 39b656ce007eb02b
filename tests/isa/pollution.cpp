// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A source for every processor, with inline functions that a set of leaves compiles too. Linked behind such a set.

#include <globalq/kernel/isa/make_set.hpp>

#include <cstdio>

char const globalq_header_only_and_compiled_sources_in_one_program = 0;

namespace globalq::kernel::isa::avx512 {
extern leaf_set const all;
}

int main() {
  constexpr globalq::kernel::isa::leaf_set own = globalq::kernel::host::detail::make_set();
  std::printf("%d\n", own.int8.adding[0].add == globalq::kernel::isa::avx512::all.int8.adding[0].add);
}
