// expect-error: globalq: levels::exponential holds at most 127 levels
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief 2^-126 is the smallest normal float32.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted = gq::levels::exponential<127>{};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused = gq::levels::exponential<128>{};
#endif
