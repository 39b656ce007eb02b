// expect-error: globalq: levels::uniform holds at most 2^24 levels
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Beyond 2^24 a float32 has no fraction left.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted = gq::levels::uniform<1U << 24>{};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused = gq::levels::uniform<(1U << 24) + 1>{};
#endif
