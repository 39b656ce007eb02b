// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The compositions of fast_math/main.cpp without evenly spaced levels.

#include "compositions.hpp"

namespace gq = globalq;

std::vector<named> other_levels() {
  gq::rounding::stochastic const stochastic;
  gq::wire::packed<> const bits{8};
  gq::levels::exponential<> const powers{12};
  gq::levels::table const table{0, 0.01, 0.1, 0.4, 1};
  return {
      {"exponential linf tree",
       gq::quantizer{gq::norm::l<>{gq::infinity, gq::infinity}, powers, stochastic, bits}, "tree"},
      {"exponential l2 requantize sra",
       gq::quantizer{gq::norm::l<>{2, 2}, powers, stochastic, bits, gq::reduce::requantize{}}, "sra"},
      {"table local inf ring", gq::quantizer{gq::norm::local<>{gq::infinity}, table, stochastic, bits},
       "ring"},
      {"table linf bucket 100 sra",
       gq::quantizer{gq::norm::l<>{gq::infinity, gq::infinity, 100}, table, stochastic, bits}, "sra"},
      {"uncompressed ring", gq::uncompressed{}, "ring"},
      {"bfloat16 ring", gq::floats<gq::bfloat16>{}, "ring"},
      {"float16 sra", gq::floats<gq::float16>{}, "sra"},
  };
}
