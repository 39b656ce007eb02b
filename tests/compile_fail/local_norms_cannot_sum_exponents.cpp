// expect-error: globalq: codes scaled by different norms cannot be added
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The same for powers of two.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted =
    gq::quantizer{gq::norm::local<>{}, gq::levels::exponential<>{}, gq::rounding::stochastic{},
                  gq::wire::int8{}, gq::reduce::requantise{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused =
    gq::quantizer{gq::norm::local<>{}, gq::levels::exponential<>{}, gq::rounding::stochastic{},
                  gq::wire::int8{}, gq::reduce::exponential{}};
#endif
