// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the leaves for values, the same for all operators.

#include "../../core/detail/compiled.hpp"
#include "../leaf.hpp"
#if !defined(GLOBALQ_COMPILED)
#include "make_leaves.hpp"
#endif

namespace GLOBALQ_ABI::kernel::host {

#if defined(GLOBALQ_COMPILED)
value_leaves const& leaves_of_values();
#else
inline value_leaves const& leaves_of_values() {
  static constexpr value_leaves all = detail::make_value_leaves();
  return all;
}
#endif

}  // namespace GLOBALQ_ABI::kernel::host
