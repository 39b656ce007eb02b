// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: how messages are put together.

#include "error.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what) {
  std::string text{"globalq: "};
  text.append(operation).append(": rank ").append(std::to_string(rank)).append(" of ");
  return text.append(std::to_string(workers)).append(": ").append(what);
}

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what, std::string_view remedy) {
  return worker_message(operation, rank, workers, what).append("; ").append(remedy);
}

}  // namespace GLOBALQ_ABI::detail
