// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: constructs the codec of an operator, in host memory or on a stream.

#include "../../core/detail/compiled.hpp"
#include "../kernels.hpp"
#include "../quantizer.hpp"
#include "coded_codec.hpp"
#include "plain_codec.hpp"
#include "stream_sparse_codec.hpp"

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
std::unique_ptr<operator_codec> make_coded(std::unique_ptr<operator_codec> inner, W const& code,
                                           operator_facts const& facts, resolution const& r,
                                           kernel::host_executor const& on) {
  return std::make_unique<coded_codec<W>>(std::move(inner), code, facts, r, on);
}
template <wire::BlockCode W>
std::unique_ptr<operator_codec> coded(std::unique_ptr<operator_codec> inner, W const& code,
                                      operator_facts const& facts, resolution const& r,
                                      kernel::host_executor const& on) {
  return make_coded(std::move(inner), code, facts, r, on);
}
#if defined(GLOBALQ_COMPILED)
#define GLOBALQ_DECLARE_CODE(code)                                                                           \
  template <>                                                                                                \
  std::unique_ptr<operator_codec> coded(std::unique_ptr<operator_codec>, code const&, operator_facts const&, \
                                        resolution const&, kernel::host_executor const&);
GLOBALQ_BUILT_IN_CODES(GLOBALQ_DECLARE_CODE)
#undef GLOBALQ_DECLARE_CODE
#endif

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
    return compose_own<Op>(sized(of.levels, r), of.rounding, of.wire, facts, r, on);
  } else {
    return host_kernels<L, R, W>::make(sized(of.levels, r), of.rounding, of.wire, facts, r.how, on);
  }
}
GLOBALQ_DECL std::unique_ptr<operator_codec> make_codec(uncompressed const&, operator_facts const&,
                                                        resolution const&, kernel::host_executor const& on);

template <class W>
inline constexpr bool is_sparse = false;
template <class Int>
inline constexpr bool is_sparse<wire::sparse<Int>> = true;

/// The same on a stream.
template <class L, class R, class W, class Op, class Space>
std::unique_ptr<operator_codec> make_codec(coded_policies<L, R, W, Op> const& of, operator_facts const& facts,
                                           resolution const& r, kernel::stream_executor<Space> const& on) {
  if (facts.own_norm != nullptr)
    fail<configuration_error>({"globalq: ", facts.name,
                               ": a user-defined norm is measured on the host only; on a stream use "
                               "norm::linf, norm::l or norm::local, or call from host memory"});
  if constexpr (is_sparse<W>) {
    using codec_type = stream_sparse_codec<typename W::code_type, Space>;
    using integers = typename codec_type::inner_wire;
    return std::make_unique<codec_type>(stream_kernels<L, R, integers, Space>::make(
                                            sized(of.levels, r), of.rounding, integers{}, facts, r.how, on),
                                        facts, r, on);
  } else if constexpr (wire::BlockCode<W>) {
    throw configuration_error("globalq: " + facts.name + ": wire::" + W::name() +
                              " is encoded on the host only; on a stream use wire::sparse, wire::packed or "
                              "wire::int8, or call from "
                              "host memory");
  } else if constexpr (!std::is_void_v<Op>) {
    return std::make_unique<stream_codec<L, R, W, Space, Op>>(sized(of.levels, r), of.rounding, of.wire,
                                                              facts, r.how, on, largest_sum_of(r));
  } else {
    return stream_kernels<L, R, W, Space>::make(sized(of.levels, r), of.rounding, of.wire, facts, r.how, on);
  }
}
template <class N, class L, class R, class W, class Op, class Executor>
std::unique_ptr<operator_codec> make_codec(quantizer<N, L, R, W, Op> const& op, operator_facts const& facts,
                                           resolution const& r, Executor const& on) {
  return make_codec(policies_of(op), facts, r, on);
}
template <class Space>
std::unique_ptr<operator_codec> make_codec(uncompressed const&, operator_facts const&, resolution const&,
                                           kernel::stream_executor<Space> const& on) {
  return std::make_unique<stream_plain_codec<Space>>(on);
}

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "make_codec-inl.hpp"
#endif
