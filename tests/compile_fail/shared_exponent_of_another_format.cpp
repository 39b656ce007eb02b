// expect-error: globalq: norm::shared_exponent scales to the largest value of a format, and these levels are others
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A shared exponent belongs to the format of the values.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] gq::quantizer const accepted{gq::norm::shared_exponent<gq::levels::e2m1>{},
                                              gq::levels::e2m1{}, gq::rounding::stochastic{},
                                              gq::wire::packed<4>{}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] gq::quantizer const refused{gq::norm::shared_exponent<gq::levels::e2m1>{},
                                             gq::levels::e4m3{}, gq::rounding::stochastic{},
                                             gq::wire::packed<8>{}};
#endif
