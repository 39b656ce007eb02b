// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What a call is refused with.

#include <globalq/core/error.hpp>

#include <string>

namespace support {

/// The message of the configuration_error that @p call throws; empty if it throws none.
template <class Call>
std::string refusal(Call const& call) {
  try {
    call();
  } catch (globalq::configuration_error const& e) {
    return e.what();
  }
  return {};
}

}  // namespace support
