// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Kernels on streams that many suites use: compiled once, in the library globalq_test_streams, or in
///        tests/cuda/streams.cpp.

#include "tests/support/space.hpp"

#include <globalq/operator/detail/make_stream_codec.hpp>

// instantiate(levels, rounding, wire) for each composition; each list is compiled in a source of its own.
#define GLOBALQ_TEST_STREAMS_OF_INTEGERS(instantiate)               \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int8); \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int16)
#define GLOBALQ_TEST_STREAMS_OF_NEAREST(instantiate)                              \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int8); \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int16)
#define GLOBALQ_TEST_STREAMS_OF_LEVELS(instantiate)                     \
  instantiate(levels::exponential<>, rounding::stochastic, wire::int8); \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::int8)
#define GLOBALQ_TEST_STREAMS_OF_PACKED(instantiate)                      \
  instantiate(levels::uniform<>, rounding::stochastic, wire::packed<4>); \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::packed<3>)
#define GLOBALQ_TEST_STREAM_CODEC(...) template struct stream_kernels<__VA_ARGS__, support::space>

#if defined(GLOBALQ_TEST_STREAMS_COMPILED)
#define GLOBALQ_TEST_EXTERN_STREAM_CODEC(...) extern GLOBALQ_TEST_STREAM_CODEC(__VA_ARGS__)
namespace GLOBALQ_ABI {
GLOBALQ_TEST_STREAMS_OF_INTEGERS(GLOBALQ_TEST_EXTERN_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_NEAREST(GLOBALQ_TEST_EXTERN_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_LEVELS(GLOBALQ_TEST_EXTERN_STREAM_CODEC);
GLOBALQ_TEST_STREAMS_OF_PACKED(GLOBALQ_TEST_EXTERN_STREAM_CODEC);
}  // namespace GLOBALQ_ABI
#endif
