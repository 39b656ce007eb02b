// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: definitions of error.hpp.

#include "error.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what) {
  return joined({"globalq: ", operation, ": rank ", rank, " of ", workers, ": ", what});
}

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what, std::string_view remedy) {
  return joined({"globalq: ", operation, ": rank ", rank, " of ", workers, ": ", what, "; ", remedy});
}

}  // namespace GLOBALQ_ABI::detail
