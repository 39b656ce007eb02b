// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: composes the operators.

#include "operators.hpp"

#include <globalq/quantizer.hpp>

namespace globalq::bench {

std::vector<contestant> operators() {
  rounding::stochastic const rounding;
  return {
      {"float32/native", uncompressed{}, schedule::native{}, false},
      {"float32/ring", uncompressed{}, schedule::ring{}, true},
      {"exponential/int8/ring", quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::int8{}},
       schedule::ring{}, true},
      {"uniform/int8/ring", quantizer{norm::linf{}, levels::uniform<>{}, rounding, wire::int8{}},
       schedule::ring{}, true},
      {"uniform/int8/native", quantizer{norm::linf{}, levels::uniform<>{}, rounding, wire::int8{}},
       schedule::native{}, true},
      {"exponential/packed4/ring",
       quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::packed<4>{}}, schedule::ring{}, true},
      {"uniform/packed4/bucket128/sra",
       quantizer{norm::linf{.bucket = 128}, levels::uniform<>{}, rounding, wire::packed<4>{}},
       schedule::scatter_reduce_allgather{}, true},
  };
}

}  // namespace globalq::bench
