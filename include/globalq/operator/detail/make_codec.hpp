// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: constructs the codec of an operator in host memory; make_stream_codec.hpp does so on a stream.

#include "../../core/detail/compiled.hpp"
#include "../kernels.hpp"
#include "../quantizer.hpp"
#if !defined(GLOBALQ_COMPILED)
#include "coded_codec.hpp"
#endif
#include "floats_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// The levels with the numbers of a resolution. @tparam L  kernel levels
template <class L>
L sized(L const& levels, resolution const& r) {
  if constexpr (KeepsHeadroom<L>) {
    return levels.resized(r.size).with_headroom(r.headroom);
  } else if constexpr (Resizable<L>) {
    return levels.resized(r.size);
  } else {
    return levels;
  }
}

/// @param inner  the codec with an integer wire
template <wire::BlockCode W>
std::unique_ptr<operator_codec> coded(std::unique_ptr<operator_codec> inner, W const& code,
                                      operator_facts const& facts, resolution const& r,
                                      kernel::host_executor const& on) {
#if defined(GLOBALQ_COMPILED)
  if constexpr (place_of_code<W> >= 0)
    return make_built_in_code(place_of_code<W>, sizeof(typename W::code_type), std::move(inner), &code, facts,
                              r, on);
  else
#endif
  {
    constexpr bool has_loops = requires { make_coded(std::move(inner), code, facts, r, on); };
    static_assert(has_loops,
                  "globalq: the compiled library has no loops for a block code of your own; include "
                  "globalq/policies.hpp");
    if constexpr (has_loops) return make_coded(std::move(inner), code, facts, r, on);
  }
}

/// The policies of a codec, as kernel types; norm and the library's reduce methods are data.
/// @tparam Reduce  a user-defined reduce operator, or void
template <class Levels, class Rounding, class Wire, class Reduce>
struct coded_policies {
  Levels levels;
  Rounding rounding;
  Wire wire;
};
template <class Op>
using own_reduce = std::conditional_t<is_reduce<Op>, void, Op>;
template <class N, class L, class R, class W, class Op>
coded_policies<kernel_levels<L>, kernel_rounding<R>, W, own_reduce<Op>> policies_of(
    quantizer<N, L, R, W, Op> const& op) {
  if constexpr (KnownAtRunTime<L>)
    return {op.levels.at_run_time(), op.rounding, op.wire};
  else
    return {op.levels, op.rounding, op.wire};
}

template <class L, class R, class W, class Op>
std::unique_ptr<operator_codec> make_codec(coded_policies<L, R, W, Op> const& of, operator_facts const& facts,
                                           resolution const& r, kernel::host_executor const& on) {
  if constexpr (wire::BlockCode<W>) {
    using integers = wire::integer<typename W::code_type>;
    return coded<W>(
        host_kernels<L, R, integers>::make(sized(of.levels, r), of.rounding, integers{}, facts, r.how, on),
        of.wire, facts, r, on);
  } else if constexpr (!std::is_void_v<Op>) {
    constexpr bool has_loops = requires {
      compose_user(std::type_identity<Op>{}, of.levels, of.rounding, of.wire, facts, r, on);
    };
    static_assert(has_loops,
                  "globalq: the compiled library has no loops for a reduce operator of your own; include "
                  "globalq/policies.hpp");
    if constexpr (has_loops)
      return compose_user(std::type_identity<Op>{}, sized(of.levels, r), of.rounding, of.wire, facts, r, on);
  } else {
    return host_kernels<L, R, W>::make(sized(of.levels, r), of.rounding, of.wire, facts, r.how, on);
  }
}
GLOBALQ_DECL std::unique_ptr<operator_codec> make_codec(floats_policies const&, operator_facts const&,
                                                        resolution const&, kernel::host_executor const& on);

template <class N, class L, class R, class W, class Op, class Executor>
std::unique_ptr<operator_codec> make_codec(quantizer<N, L, R, W, Op> const& op, operator_facts const& facts,
                                           resolution const& r, Executor const& on) {
  return make_codec(policies_of(op), facts, r, on);
}
template <class T, class R, class Executor>
std::unique_ptr<operator_codec> make_codec(floats<T, R> const& op, operator_facts const& facts,
                                           resolution const& r, Executor const& on) {
  return make_codec(policies_of(op), facts, r, on);
}
}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "make_codec-inl.hpp"
#endif
