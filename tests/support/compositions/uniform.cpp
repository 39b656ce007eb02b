// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: uniform levels.

#include "tests/support/compositions.hpp"

namespace globalq {
GLOBALQ_TEST_UNIFORM(GLOBALQ_TEST_CODEC);
}  // namespace globalq
