// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the list of built-in policies (../built_in.hpp) as types.

#include "../../levels/exponential.hpp"
#include "../../levels/table.hpp"
#include "../../levels/uniform.hpp"
#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "../../rounding/correlated.hpp"
#include "../../rounding/shared_draw.hpp"
#include "../../rounding/stochastic.hpp"
#include "../../wire/elias.hpp"
#include "../../wire/huffman.hpp"
#include "../../wire/packed.hpp"
#include "../../wire/sparse.hpp"
#include "../built_in.hpp"

#include <type_traits>

namespace GLOBALQ_ABI::kernel::host {

/// Types in an order. The first argument only separates: a list of macros begins each entry with a comma.
template <class, class... Policies>
struct policy_list {
  /// The same after others.
  template <class... Others>
  using after = policy_list<void, Others..., Policies...>;

  /// The place of a policy; -1 if it is not in the list.
  template <class Policy>
  static constexpr int place() {
    int at = 0;
    return ((std::is_same_v<Policy, Policies> ? false : (++at, true)) && ...) ? -1 : at;
  }
};

#define GLOBALQ_BUILT_IN_TYPE(...) , __VA_ARGS__
#define GLOBALQ_BUILT_IN_CODE(code) , code<Int>
using built_in_levels = policy_list<void GLOBALQ_BUILT_IN_LEVELS(GLOBALQ_BUILT_IN_TYPE)>;
using built_in_roundings = policy_list<void GLOBALQ_BUILT_IN_ROUNDINGS(GLOBALQ_BUILT_IN_TYPE)>;
using built_in_reduces = policy_list<void GLOBALQ_BUILT_IN_REDUCES(GLOBALQ_BUILT_IN_TYPE)>;
using built_in_widths = policy_list<void GLOBALQ_BUILT_IN_WIDTHS(GLOBALQ_BUILT_IN_TYPE)>;
/// @tparam Int  std::int8_t or std::int16_t
template <class Int>
using built_in_codes = policy_list<void GLOBALQ_BUILT_IN_CODES(GLOBALQ_BUILT_IN_CODE)>;
#undef GLOBALQ_BUILT_IN_TYPE
#undef GLOBALQ_BUILT_IN_CODE

}  // namespace GLOBALQ_ABI::kernel::host
