// expect-error: globalq: reduce::exponential cannot add codes of this level scheme
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Only powers of two are added as codes.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted =
    gq::quantizer{gq::norm::linf{}, gq::levels::exponential{7}, gq::rounding::stochastic{}, gq::wire::int8{},
                  gq::reduce::exponential{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused =
    gq::quantizer{gq::norm::linf{}, gq::levels::exponential{7, 1.5}, gq::rounding::stochastic{},
                  gq::wire::int8{}, gq::reduce::exponential{}};
#endif
