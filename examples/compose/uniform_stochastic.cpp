// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: the kernels of uniform levels with stochastic rounding.

#include "assemble.hpp"

namespace compose {

globalq::any_quantizer uniform_stochastic(globalq::levels::uniform<> levels, parts const& with) {
  return assemble(levels, globalq::rounding::stochastic{}, with);
}

}  // namespace compose
