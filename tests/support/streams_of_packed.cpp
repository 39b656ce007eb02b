// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: compositions that many suites use: packed codes, on a stream.

#include "tests/support/compositions.hpp"

namespace GLOBALQ_ABI {
GLOBALQ_TEST_STREAMS_OF_PACKED(GLOBALQ_TEST_STREAM_CODEC);
}  // namespace GLOBALQ_ABI
