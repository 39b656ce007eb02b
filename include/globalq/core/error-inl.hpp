// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: definitions of error.hpp.

#include "error.hpp"

#include <algorithm>

namespace GLOBALQ_ABI {

GLOBALQ_DECL error::error(std::string const& text) : std::runtime_error(detail::printable(text)) {}

namespace detail {

GLOBALQ_DECL std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what) {
  return joined({"globalq: ", operation, ": rank ", rank, " of ", workers, ": ", what});
}

GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what, std::string_view remedy) {
  return joined({"globalq: ", operation, ": rank ", rank, " of ", workers, ": ", what, "; ", remedy});
}

}  // namespace detail
}  // namespace GLOBALQ_ABI
