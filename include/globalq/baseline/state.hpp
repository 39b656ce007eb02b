// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the state that compressors keep between steps.

#include "../core/saved_state.hpp"

namespace GLOBALQ_ABI::baseline {

using state = saved_state;

}  // namespace GLOBALQ_ABI::baseline
