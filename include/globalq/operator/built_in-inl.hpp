// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: macros by which a source defines the built-in policies, outside all namespaces.

#include "../kernel/host/leaf_code.hpp"
#include "../kernel/isa/set.hpp"
#include "detail/coded_codec.hpp"
#include "detail/make_codec.hpp"

namespace GLOBALQ_ABI::kernel::host::detail {

template <class Levels>
constexpr int kind_of() {
  using isa::level_kind;
  if constexpr (std::is_same_v<Levels, levels::uniform<>>)
    return static_cast<int>(level_kind::uniform);
  else if constexpr (std::is_same_v<Levels, levels::exponential<>>)
    return static_cast<int>(level_kind::exponential);
  else
    return static_cast<int>(level_kind::table);
}

template <class Levels, class Rounding, class Int, bool Nibbles>
coding_leaves<Int> chosen_coding_of() {
  coding_leaves<Int> leaf =
      isa::chosen_integers<Int>().coding[kind_of<Levels>()][Rounding::word_per_coordinate ? 0 : 1];
  // these loops write the bytes of wire::packed; another wire of four bits may have other ones
  if constexpr (!Nibbles)
    for (auto& loop : leaf.nibbles_of_tiles) loop = nullptr;
  return leaf;
}
template <class Levels, class Int>
level_leaves<Int> chosen_decoding_of() {
  return isa::chosen_integers<Int>().decoding[kind_of<Levels>()];
}
template <class Wire>
wire_leaves<typename Wire::code_type> chosen_packing_of() {
  return isa::chosen().leaves().packed[Wire::static_bits];
}
template <class Op, class Int>
reduce_leaves<Int> chosen_adding_of() {
  if constexpr (Op::draws)
    return isa::chosen_integers<Int>().exponential;
  else
    return isa::chosen_integers<Int>().sum;
}
template <class Int>
integer_leaves<Int> chosen_integers_of() {
  return isa::chosen_integers<Int>().any;
}

}  // namespace GLOBALQ_ABI::kernel::host::detail

namespace GLOBALQ_ABI::detail {
#define GLOBALQ_BODY_BY_LEAVES(code)             \
  template <>                                    \
  struct coded_body<code> {                      \
    using type = kernel::host::leaf_coded<code>; \
  };
GLOBALQ_BUILT_IN_CODES(GLOBALQ_BODY_BY_LEAVES)
#undef GLOBALQ_BODY_BY_LEAVES
}  // namespace GLOBALQ_ABI::detail

#define GLOBALQ_DEFINE_LEAF(result, function, ...)   \
  template <>                                        \
  result function<__VA_ARGS__>() {                   \
    return detail::chosen_##function<__VA_ARGS__>(); \
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

// Define all leaves; the compositions of some levels; block codes; the codec of a code type.
#define GLOBALQ_DEFINE_LEAVES                                                      \
  namespace GLOBALQ_ABI::kernel::host {                                            \
  GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::uniform<>)                 \
  GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::exponential<>)             \
  GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::detail::level_table)       \
  GLOBALQ_LEAVES_OF_CODE_TYPES(GLOBALQ_DEFINE_LEAF)                                \
  value_leaves const& leaves_of_values() { return isa::chosen().leaves().values; } \
  }
#define GLOBALQ_DEFINE_COMPOSITIONS(levels)                         \
  namespace GLOBALQ_ABI {                                           \
  GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels) \
  }
#define GLOBALQ_DEFINE_CODES                  \
  namespace GLOBALQ_ABI {                     \
  GLOBALQ_BUILT_IN_CODES(GLOBALQ_DEFINE_CODE) \
  }
#define GLOBALQ_DEFINE_CODE_TYPE(code_type)                                                         \
  namespace GLOBALQ_ABI::detail {                                                                   \
  template std::unique_ptr<operator_codec> make_composed(std::unique_ptr<host_policies<code_type>>, \
                                                         operator_facts const&, method,             \
                                                         kernel::host_executor const&);             \
  }
