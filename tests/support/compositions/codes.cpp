// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: codes of variable length.

#include "tests/support/compositions.hpp"

namespace globalq {
GLOBALQ_TEST_CODES(GLOBALQ_TEST_CODED_CODEC);
}  // namespace globalq
