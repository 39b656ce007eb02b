// expect-error: globalq: reduce::sum cannot add codes of this level scheme
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Indices of a table are no numbers to be added.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted = gq::quantizer{gq::norm::linf{}, gq::levels::table{0, 0.5, 1},
                                                     gq::rounding::stochastic{}, gq::wire::int8{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused =
    gq::quantizer{gq::norm::linf{}, gq::levels::table{0, 0.5, 1}, gq::rounding::stochastic{},
                  gq::wire::int8{}, gq::reduce::sum{}};
#endif
