// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What a call is refused with, or fails with.

#include <globalq/core/error.hpp>

#include <string>

namespace support {

/// The message of the Error that @p call throws; empty if it throws none.
template <class Error = globalq::configuration_error, class Call>
std::string refusal(Call const& call) {
  try {
    call();
  } catch (Error const& e) {
    return e.what();
  }
  return {};
}

}  // namespace support
