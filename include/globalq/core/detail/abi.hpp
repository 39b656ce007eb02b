// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the namespace in which a source compiles globalq, which depends on the compiler flags.
///
/// Two sources of a program may be compiled for different instruction sets, with and without -ffast-math, or one of
/// them by nvcc. Of an inline function in both, the linker keeps one, which may then run on a machine without its
/// instructions. Header-only code therefore stands in an inline namespace named after those flags. Names in source code
/// do not change; names for the linker do. Sources that pass objects of globalq to each other must be compiled with the
/// same flags. globalq::compiled has one set of names; its loops for instruction sets are in globalq::kernel::isa.

/// Whether loops that compilers vectorize poorly use AVX-512 intrinsics (kernel/isa; the portable versions give the
/// same bits). Define GLOBALQ_AVX512 as 0 to disable them; for portable code also GLOBALQ_AVX2.
#if !defined(GLOBALQ_AVX512)
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    !defined(__CUDACC__) && !defined(__HIPCC__)
#define GLOBALQ_AVX512 1
#else
#define GLOBALQ_AVX512 0
#endif
#endif

/// The same for AVX2, if AVX-512 is not used: for the few loops that gain most.
#if !defined(GLOBALQ_AVX2)
#if defined(__AVX2__) && !GLOBALQ_AVX512 && !defined(__CUDACC__) && !defined(__HIPCC__)
#define GLOBALQ_AVX2 1
#else
#define GLOBALQ_AVX2 0
#endif
#endif
#if GLOBALQ_AVX512 && GLOBALQ_AVX2
#error \
    "globalq: GLOBALQ_AVX512 and GLOBALQ_AVX2 are both 1, but only one set of loops can be used; define one as 0"
#endif

#if defined(GLOBALQ_COMPILED)
#define GLOBALQ_ABI globalq
#else

#if defined(__AVX512VBMI2__)
#define GLOBALQ_ABI_INSTRUCTIONS avx512vbmi
#elif defined(__AVX512BW__)
#define GLOBALQ_ABI_INSTRUCTIONS avx512
#elif defined(__AVX2__)
#define GLOBALQ_ABI_INSTRUCTIONS avx2
#elif defined(__AVX__)
#define GLOBALQ_ABI_INSTRUCTIONS avx
#elif defined(__SSE4_2__)
#define GLOBALQ_ABI_INSTRUCTIONS sse4
#elif defined(__ARM_FEATURE_SVE)
#define GLOBALQ_ABI_INSTRUCTIONS sve
#else
#define GLOBALQ_ABI_INSTRUCTIONS baseline
#endif

// loops that the user has disabled
#if defined(__AVX512BW__) && !GLOBALQ_AVX512 && GLOBALQ_AVX2
#define GLOBALQ_ABI_LOOPS _avx2_loops
#elif defined(__AVX2__) && !GLOBALQ_AVX512 && !GLOBALQ_AVX2
#define GLOBALQ_ABI_LOOPS _portable_loops
#else
#define GLOBALQ_ABI_LOOPS
#endif

#if defined(__FAST_MATH__)
#define GLOBALQ_ABI_ARITHMETIC _fast_math
#else
#define GLOBALQ_ABI_ARITHMETIC
#endif

#if defined(__CUDACC__) || defined(__HIPCC__)
#define GLOBALQ_ABI_COMPILER _device
#else
#define GLOBALQ_ABI_COMPILER
#endif

#define GLOBALQ_ABI_JOIN(instructions, loops, arithmetic, compiler) \
  abi_##instructions##loops##arithmetic##compiler
#define GLOBALQ_ABI_NAME(...) GLOBALQ_ABI_JOIN(__VA_ARGS__)
/// The namespace globalq, for definitions: `namespace GLOBALQ_ABI::levels {`.
#define GLOBALQ_ABI                                                                                     \
  globalq::inline GLOBALQ_ABI_NAME(GLOBALQ_ABI_INSTRUCTIONS, GLOBALQ_ABI_LOOPS, GLOBALQ_ABI_ARITHMETIC, \
                                   GLOBALQ_ABI_COMPILER)

#endif
