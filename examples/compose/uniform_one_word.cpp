// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: the kernels of uniform levels with random shift and nearest rounding.

#include "assemble.hpp"

namespace compose {

globalq::any_quantizer uniform_one_word(globalq::levels::uniform<> levels, parts const& with) {
  return assemble_one_word(levels, with);
}

}  // namespace compose
