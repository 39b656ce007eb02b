// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: the kernels of table levels with random shift and nearest rounding.

#include "assemble.hpp"

namespace compose {

globalq::any_quantizer table_one_word(any_table const& levels, parts const& with) {
  return assemble_one_word(levels, with);
}

}  // namespace compose
