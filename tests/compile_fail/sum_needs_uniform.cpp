// expect-error: globalq: reduce::sum cannot add codes of this level scheme
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Integer sums need evenly spaced levels.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted =
    gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::stochastic{}, gq::wire::int8{},
                  gq::reduce::requantise{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused =
    gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::stochastic{}, gq::wire::int8{},
                  gq::reduce::sum{}};
#endif
