// expect-error: globalq: the harness shows this sentence
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The harness itself: a refusal with a known sentence.

#include <globalq/version.hpp>

#ifndef GLOBALQ_COMPILE_FAIL_OFF
static_assert(GLOBALQ_VERSION_MAJOR < 0, "globalq: the harness shows this sentence");
#endif
