// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a template by which a program controls where kernels for streams are compiled.

#include "detail/stream_codec.hpp"
#include "kernels.hpp"

#include <memory>

namespace GLOBALQ_ABI {

/// @brief host_kernels for vectors in the memory of a stream of @p Space.
template <class Levels, class Rounding, WireFormat Wire, class Space>
struct stream_kernels {
  static_assert(std::is_same_v<Levels, kernel_levels<Levels>> &&
                    std::is_same_v<Rounding, kernel_rounding<Rounding>>,
                "globalq: these levels or this rounding share their kernels with others; use "
                "stream_kernels<kernel_levels<Levels>, kernel_rounding<Rounding>, Wire, Space>; see "
                "docs/composing.md");

  static std::unique_ptr<detail::operator_codec> make(Levels const& levels, Rounding const& rounding,
                                                      Wire const& wire, detail::operator_facts const& facts,
                                                      method how, kernel::stream_executor<Space> const& on);
};

template <class Levels, class Rounding, WireFormat Wire, class Space>
std::unique_ptr<detail::operator_codec> stream_kernels<Levels, Rounding, Wire, Space>::make(
    Levels const& levels, Rounding const& rounding, Wire const& wire, detail::operator_facts const& facts,
    method how, kernel::stream_executor<Space> const& on) {
  return std::make_unique<detail::stream_codec<Levels, Rounding, Wire, Space>>(levels, rounding, wire, facts,
                                                                               how, on);
}

}  // namespace GLOBALQ_ABI
