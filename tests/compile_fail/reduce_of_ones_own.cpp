// expect-error: the library does not run reduce operators of your own
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A reduce operator of one's own would be ignored.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

struct largest {
  static constexpr char const* name() { return "largest"; }
};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
using reduce = largest;
#else
using reduce = gq::reduce::requantise;
#endif
gq::quantizer<gq::norm::linf, gq::levels::uniform<7>, gq::rounding::stochastic, gq::wire::int8, reduce> op;
