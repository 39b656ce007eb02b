// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: environment variables that switch something on.

#include "abi.hpp"

#include <cstdlib>
#include <string_view>

namespace GLOBALQ_ABI::detail {

/// Whether a variable is non-empty and not 0.
inline bool switched_on(char const* variable) {
  char const* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

}  // namespace GLOBALQ_ABI::detail
