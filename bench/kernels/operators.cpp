// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <globalq/operator/quantizer.hpp>

namespace globalq::bench {

any_quantizer uniform_int8() {
  return quantizer{norm::linf{}, levels::uniform<>{}, rounding::stochastic{}, wire::int8{}};
}

any_quantizer exponential_int8() {
  return quantizer{norm::linf{}, levels::exponential<>{}, rounding::stochastic{}, wire::int8{}};
}

any_quantizer uniform_packed4_bucket128() {
  return quantizer{norm::linf{128}, levels::uniform<>{}, rounding::stochastic{}, wire::packed<4>{}};
}

}  // namespace globalq::bench
