// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the namespace in which a source compiles globalq: one for each meaning of its flags.
///
/// Two sources of a program may be compiled for different instruction sets, with and without -ffast-math, or one of them by
/// nvcc. Of an inline function in both a linker keeps one, which may then run where its instructions are missing. So all
/// that is compiled in a source stands in an inline namespace named after those flags: the names that a program writes stay
/// what they are, those that a linker sees differ. What is passed from source to source must have been compiled alike.
/// With globalq::compiled there is one set of names, that of the library; its loops for an instruction set stand in
/// globalq::kernel::isa (kernel/isa/).

/// Whether the loops that compilers do not bring to speed are written out for AVX-512 (kernel/isa; their
/// portable twins give the same bits). Define GLOBALQ_AVX512 as 0 to do without; GLOBALQ_AVX2 too for portable code.
#if !defined(GLOBALQ_AVX512)
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    !defined(__CUDACC__) && !defined(__HIPCC__)
#define GLOBALQ_AVX512 1
#else
#define GLOBALQ_AVX512 0
#endif
#endif

/// The same for AVX2, where AVX-512 is not used: for the few loops in which it makes the most difference.
#if !defined(GLOBALQ_AVX2)
#if defined(__AVX2__) && !GLOBALQ_AVX512 && !defined(__CUDACC__) && !defined(__HIPCC__)
#define GLOBALQ_AVX2 1
#else
#define GLOBALQ_AVX2 0
#endif
#endif
#if GLOBALQ_AVX512 && GLOBALQ_AVX2
#error \
    "globalq: GLOBALQ_AVX512 and GLOBALQ_AVX2 are both 1; the loops for AVX2 are for machines without AVX-512: define one as 0"
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

// loops that a user has switched off
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
/// globalq, for what is defined in it: `namespace GLOBALQ_ABI::levels {`.
#define GLOBALQ_ABI                                                                                     \
  globalq::inline GLOBALQ_ABI_NAME(GLOBALQ_ABI_INSTRUCTIONS, GLOBALQ_ABI_LOOPS, GLOBALQ_ABI_ARITHMETIC, \
                                   GLOBALQ_ABI_COMPILER)

#endif
