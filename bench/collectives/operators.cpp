// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: composes the operators.

#include "operators.hpp"

#include <globalq/operator/quantizer.hpp>

namespace globalq::bench {

std::vector<contestant> operators() {
  rounding::stochastic const rounding;
  quantizer const cgx{norm::linf{.bucket = 128}, levels::uniform<>{}, rounding, wire::packed<4>{}};
  return {
      {"float32/native", uncompressed{}, schedule::native{}, false},
      {"float32/ring", uncompressed{}, schedule::ring{}, true},
      {"bfloat16/ring", floats<bfloat16>{}, schedule::ring{}, true},
      {"float16/ring", floats<float16>{}, schedule::ring{}, true},
      {"exponential/int8/ring", quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::int8{}},
       schedule::ring{}, true},
      {"uniform/int8/ring", quantizer{norm::linf{}, levels::uniform<>{}, rounding, wire::int8{}},
       schedule::ring{}, true},
      {"uniform/int8/native", quantizer{norm::linf{}, levels::uniform<>{}, rounding, wire::int8{}},
       schedule::native{}, true},
      {"exponential/packed4/ring",
       quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::packed<4>{}}, schedule::ring{}, true},
      {"uniform/packed4/bucket128/sra", cgx, schedule::scatter_reduce_allgather{}, true},
      // the same with telemetry, to measure its overhead
      {"uniform/packed4/bucket128/sra/telemetry", cgx, schedule::scatter_reduce_allgather{}, true,
       watched::times},
      {"uniform/packed4/bucket128/sra/telemetry/errors", cgx, schedule::scatter_reduce_allgather{}, true,
       watched::errors},
      // frames of variable length, each next to the same codes with fixed width
      {"uniform/7/bucket128/huffman/sra",
       quantizer{norm::linf{.bucket = 128}, levels::uniform<7>{}, rounding, wire::huffman<>{}},
       schedule::scatter_reduce_allgather{}, true},
      {"qsgd/1/packed2/allgather",
       quantizer{norm::local<2>{.bucket = 512}, levels::uniform<1>{}, rounding, wire::packed<2>{}},
       schedule::allgather{}, true},
      {"qsgd/1/sparse/allgather",
       quantizer{norm::local<2>{.bucket = 512}, levels::uniform<1>{}, rounding, wire::sparse<>{}},
       schedule::allgather{}, true},
      {"qsgd/1/elias/allgather",
       quantizer{norm::local<2>{.bucket = 512}, levels::uniform<1>{}, rounding, wire::elias<>{}},
       schedule::allgather{}, true},
  };
}

}  // namespace globalq::bench
