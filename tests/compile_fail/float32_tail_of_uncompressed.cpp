// expect-error: globalq: all of an uncompressed vector is float32 already
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A tail is what an operator does not quantise; uncompressed quantises nothing.

#include <globalq/operator/float32_tail.hpp>

namespace gq = globalq;

[[maybe_unused]] gq::float32_tail const accepted{gq::quantizer{
    gq::norm::linf{.bucket = 128}, gq::levels::uniform{7}, gq::rounding::stochastic{}, gq::wire::int8{}}};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] gq::float32_tail const refused{gq::uncompressed{}};
#endif
