// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: integers of uniform levels, rounded to the nearest, on a stream.

#include "tests/support/compositions.hpp"

namespace GLOBALQ_ABI {
GLOBALQ_TEST_STREAMS_OF_NEAREST(GLOBALQ_TEST_STREAM_CODEC);
}  // namespace GLOBALQ_ABI
