// expect-error: globalq: codes scaled by different norms cannot be added
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Each worker's codes have a unit of their own.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted =
    gq::quantizer{gq::norm::local<2>{}, gq::levels::uniform{7}, gq::rounding::stochastic{}, gq::wire::int8{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused =
    gq::quantizer{gq::norm::local<2>{}, gq::levels::uniform{7}, gq::rounding::stochastic{}, gq::wire::int8{},
                  gq::reduce::sum{}};
#endif
