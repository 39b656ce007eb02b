// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: the kernels of exponential levels with stochastic rounding.

#include "assemble.hpp"

namespace compose {

globalq::any_quantizer exponential_stochastic(globalq::levels::exponential<> levels, parts const& with) {
  return assemble(levels, globalq::rounding::stochastic{}, with);
}

}  // namespace compose
