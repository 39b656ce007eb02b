// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief An operator whose kernels this source compiles, for compiled_once_test.cpp.

#include <globalq/operator/any_quantizer.hpp>

namespace gq = globalq;

gq::any_quantizer any_width(gq::norm::local<2> norm, gq::levels::uniform<> levels, std::uint32_t bits) {
  return gq::quantizer{norm, levels, gq::rounding::stochastic{}, gq::wire::packed<>{bits}};
}
