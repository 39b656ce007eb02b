// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The compositions that many suites use: their kernels are compiled once, in the library globalq_compositions.
///
/// A suite that links the library (LIBRARIES globalq_compositions) and includes this header does not compile these kernels
/// itself. Without the library the header declares nothing, and a file compiles all that it uses: programs with flags of
/// their own, such as those of tests/allreduce_mean/fast_math, test what they were compiled with. A file that has the
/// library and other flags than the library does not link.

#include "tests/support/space.hpp"

#include <globalq/operator/detail/make_codec.hpp>

// Each list is a macro: instantiate(levels, rounding, wire) is called for each composition.
#define GLOBALQ_TEST_UNIFORM(instantiate)                                \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int8);      \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int16);     \
  instantiate(levels::uniform<>, rounding::stochastic, wire::packed<>);  \
  instantiate(levels::uniform<>, rounding::stochastic, wire::packed<3>); \
  instantiate(levels::uniform<>, rounding::stochastic, wire::packed<4>)
#define GLOBALQ_TEST_EXPONENTIAL(instantiate)                               \
  instantiate(levels::exponential<>, rounding::stochastic, wire::int8);     \
  instantiate(levels::exponential<>, rounding::stochastic, wire::int16);    \
  instantiate(levels::exponential<>, rounding::stochastic, wire::packed<>); \
  instantiate(levels::exponential<>, rounding::stochastic, wire::packed<4>)
#define GLOBALQ_TEST_TABLE(instantiate)                                             \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::int8);      \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::int16);     \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::packed<>);  \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::packed<3>); \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::packed<4>)
#define GLOBALQ_TEST_ONE_WORD(instantiate)                                             \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int8);      \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int16);     \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::packed<5>); \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::packed<2>); \
  instantiate(kernel_levels<levels::table>, kernel_rounding<rounding::nearest>, wire::int32)
/// On a stream.
#define GLOBALQ_TEST_STREAMS(instantiate)                                          \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int8);                \
  instantiate(levels::uniform<>, rounding::stochastic, wire::int16);               \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int8);  \
  instantiate(levels::uniform<>, kernel_rounding<rounding::nearest>, wire::int16); \
  instantiate(levels::uniform<>, rounding::stochastic, wire::packed<4>);           \
  instantiate(levels::exponential<>, rounding::stochastic, wire::int8);            \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::int8);     \
  instantiate(kernel_levels<levels::table>, rounding::stochastic, wire::packed<3>)
/// What is around whole integers: instantiate(code).
#define GLOBALQ_TEST_CODES(instantiate) \
  instantiate(wire::elias<>);           \
  instantiate(wire::huffman<>);         \
  instantiate(wire::sparse<>)

#define GLOBALQ_TEST_CODEC(...) template struct host_kernels<__VA_ARGS__>
#define GLOBALQ_TEST_CODED_CODEC(...) template class detail::coded_codec<__VA_ARGS__>
#define GLOBALQ_TEST_STREAM_CODEC(...) template struct stream_kernels<__VA_ARGS__, support::space>

#if defined(GLOBALQ_TEST_COMPOSITIONS)
#define GLOBALQ_TEST_EXTERN_CODEC(...) extern GLOBALQ_TEST_CODEC(__VA_ARGS__)
#define GLOBALQ_TEST_EXTERN_CODED_CODEC(...) extern GLOBALQ_TEST_CODED_CODEC(__VA_ARGS__)
#define GLOBALQ_TEST_EXTERN_STREAM_CODEC(...) extern GLOBALQ_TEST_STREAM_CODEC(__VA_ARGS__)

namespace globalq {
GLOBALQ_TEST_UNIFORM(GLOBALQ_TEST_EXTERN_CODEC);
GLOBALQ_TEST_ONE_WORD(GLOBALQ_TEST_EXTERN_CODEC);
GLOBALQ_TEST_EXPONENTIAL(GLOBALQ_TEST_EXTERN_CODEC);
GLOBALQ_TEST_TABLE(GLOBALQ_TEST_EXTERN_CODEC);
GLOBALQ_TEST_CODES(GLOBALQ_TEST_EXTERN_CODED_CODEC);
GLOBALQ_TEST_STREAMS(GLOBALQ_TEST_EXTERN_STREAM_CODEC);
}  // namespace globalq

namespace support {

/// What the compiler was told, as far as it changes the code of kernels and shows.
struct compiler_flags {
  bool avx512 = GLOBALQ_AVX512 != 0;
#if defined(__AVX2__)
  bool avx2 = true;
#else
  bool avx2 = false;
#endif
#if defined(__FMA__)
  bool fma = true;
#else
  bool fma = false;
#endif
#if defined(__FAST_MATH__)
  bool fast_math = true;
#else
  bool fast_math = false;
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
  bool finite_only = true;
#else
  bool finite_only = false;
#endif
#if defined(_GLIBCXX_ASSERTIONS)
  bool assertions = true;
#else
  bool assertions = false;
#endif
#if defined(NDEBUG)
  bool release = true;
#else
  bool release = false;
#endif
};

/// Defined by the library for its own flags only.
template <compiler_flags>
void compositions_compiled_with();

namespace {
[[gnu::used]] void (*const expect_the_flags_of_the_library)() = compositions_compiled_with<compiler_flags{}>;
}

}  // namespace support
#endif
