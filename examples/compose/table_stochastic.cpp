// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: the kernels of table levels with stochastic rounding.

#include "assemble.hpp"

namespace compose {

globalq::any_quantizer table_stochastic(any_table const& levels, parts const& with) {
  return assemble(levels, globalq::rounding::stochastic{}, with);
}

}  // namespace compose
