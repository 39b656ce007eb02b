// expect-error: globalq: shifting back needs evenly spaced levels
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Decoding adds a shift in units of the gap: the gaps must be equal.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted = gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{},
                                                     gq::rounding::random_shift<false>{}, gq::wire::int8{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused = gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{},
                                                    gq::rounding::random_shift<>{}, gq::wire::int8{}};
#endif
