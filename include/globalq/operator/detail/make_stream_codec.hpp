// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: constructs the codec of an operator on a stream.

#include "../stream_kernels.hpp"
#include "make_codec.hpp"
#include "stream_sparse_codec.hpp"

namespace GLOBALQ_ABI::detail {

template <class W>
inline constexpr bool is_sparse = false;
template <class Int>
inline constexpr bool is_sparse<wire::sparse<Int>> = true;

/// make_codec() on a stream.
template <class L, class R, class W, class Op, class Space>
std::unique_ptr<operator_codec> make_codec(coded_policies<L, R, W, Op> const& of, operator_facts const& facts,
                                           resolution const& r, kernel::stream_executor<Space> const& on) {
  if (facts.user_norm != nullptr)
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
template <class Space>
std::unique_ptr<operator_codec> make_codec(floats_policies const& policies, operator_facts const&,
                                           resolution const&, kernel::stream_executor<Space> const& on) {
  return std::make_unique<stream_floats_codec<Space>>(on, policies);
}

}  // namespace GLOBALQ_ABI::detail
