// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the environment variable that replaces operators by float32.

#include "../../core/detail/environment.hpp"
#include "../../core/detail/joined.hpp"

#include <string>

namespace GLOBALQ_ABI::detail {

inline constexpr char const* float32_variable = "GLOBALQ_FORCE_FLOAT32";

/// Whether the variable is non-empty and not 0. Read when a collective is constructed.
inline bool float32_forced() { return switched_on(float32_variable); }

/// Hint for errors of workers whose operators differ.
/// @param forced  whether this worker's operator was replaced
inline std::string float32_forced_text(bool forced) {
  return forced ? joined({"; ", float32_variable,
                          " was set when this worker made its operator: set it for all workers, or for none"})
                : std::string();
}

}  // namespace GLOBALQ_ABI::detail
