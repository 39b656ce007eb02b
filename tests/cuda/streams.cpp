// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compiles the compositions that many suites use on a stream, and the kernels of calls, for the CUDA space; see kernels.cpp.

#include "tests/support/compositions.hpp"

#include <globalq/globalq.hpp>
#include <globalq/stream.hpp>

namespace GLOBALQ_ABI {
GLOBALQ_TEST_STREAMS_OF_INTEGERS(GLOBALQ_TEST_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_NEAREST(GLOBALQ_TEST_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_LEVELS(GLOBALQ_TEST_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_PACKED(GLOBALQ_TEST_STREAM_CODEC);

template class detail::stream_call<support::space>;
}  // namespace GLOBALQ_ABI
