// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: how a source defines what is built in: by macros that stand outside of all namespaces.

#include "detail/make_codec.hpp"

#define GLOBALQ_DEFINE_LEAF(result, function, ...) \
  template <>                                      \
  result function<__VA_ARGS__>() {                 \
    return detail::make_##function<__VA_ARGS__>(); \
  }

#define GLOBALQ_DEFINE_COMPOSITION(levels, rounding, wire)                                                \
  template <>                                                                                             \
  std::unique_ptr<detail::operator_codec> host_kernels<levels, rounding, wire>::make(                     \
      levels const& l, rounding const& r, wire const& w, detail::operator_facts const& facts, method how, \
      kernel::host_executor const& on) {                                                                  \
    return detail::compose(l, r, w, facts, how, on);                                                      \
  }

#define GLOBALQ_DEFINE_CODE(code)                                                         \
  template <>                                                                             \
  std::unique_ptr<detail::operator_codec> detail::coded(                                  \
      std::unique_ptr<operator_codec> inner, code const& of, operator_facts const& facts, \
      resolution const& r, kernel::host_executor const& on) {                             \
    return detail::make_coded(std::move(inner), of, facts, r, on);                        \
  }

// All of some levels; of wire formats and the exponential reduce; of codes; of a lane.
#define GLOBALQ_DEFINE_LEVELS(levels)                               \
  namespace GLOBALQ_ABI::kernel::host {                                 \
  GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels)             \
  }                                                                 \
  namespace GLOBALQ_ABI {                                               \
  GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels) \
  }
#define GLOBALQ_DEFINE_WIRES                   \
  namespace GLOBALQ_ABI::kernel::host {            \
  GLOBALQ_LEAVES_OF_WIRES(GLOBALQ_DEFINE_LEAF) \
  }
#define GLOBALQ_DEFINE_CODES                  \
  namespace GLOBALQ_ABI {                         \
  GLOBALQ_BUILT_IN_CODES(GLOBALQ_DEFINE_CODE) \
  }
#define GLOBALQ_DEFINE_LANE(lane)                                                              \
  namespace GLOBALQ_ABI::detail {                                                                  \
  template std::unique_ptr<operator_codec> make_composed(std::unique_ptr<host_policies<lane>>, \
                                                         operator_facts const&, method,        \
                                                         kernel::host_executor const&);        \
  }
