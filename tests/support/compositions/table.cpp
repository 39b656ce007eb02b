// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: tables.

#include "tests/support/compositions.hpp"

namespace globalq {
GLOBALQ_TEST_TABLE(GLOBALQ_TEST_CODEC);
}  // namespace globalq
