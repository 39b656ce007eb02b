// expect-error: globalq: wire::packed holds 1 to 8 bits a code
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Longer codes are whole integers.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

[[maybe_unused]] auto const accepted = gq::wire::packed<8>{};

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] auto const refused = gq::wire::packed<9>{};
#endif
