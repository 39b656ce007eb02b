// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of make_codec.hpp: the codec of floating-point numbers.

#include "make_codec.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::unique_ptr<operator_codec> make_codec(floats_policies const& policies,
                                                        operator_facts const&, resolution const&,
                                                        kernel::host_executor const& on) {
  return std::make_unique<floats_codec>(on, policies);
}

}  // namespace GLOBALQ_ABI::detail
