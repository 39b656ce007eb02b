// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: roundings of one word a bucket.

#include "tests/support/compositions.hpp"

namespace globalq {
GLOBALQ_TEST_ONE_WORD(GLOBALQ_TEST_CODEC);
}  // namespace globalq
