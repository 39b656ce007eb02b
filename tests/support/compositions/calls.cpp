// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: calls over transport::threads that many suites make.

#include "tests/support/calls.hpp"

namespace globalq {
GLOBALQ_TEST_SCHEDULES(GLOBALQ_TEST_CALL);
}  // namespace globalq
