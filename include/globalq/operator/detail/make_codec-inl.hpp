// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of make_codec.hpp: the codec of float32.

#include "make_codec.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::unique_ptr<operator_codec> make_codec(uncompressed const&, operator_facts const&,
                                                        resolution const&, kernel::host_executor const& on) {
  return std::make_unique<plain_codec>(on);
}

}  // namespace GLOBALQ_ABI::detail
