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

#if defined(GLOBALQ_COMPILED)
#define GLOBALQ_ABI globalq
#else

#if defined(__CUDACC__) || defined(__HIPCC__)
#define GLOBALQ_ABI_INSTRUCTIONS device_compiler
#elif defined(__AVX512VBMI2__)
#define GLOBALQ_ABI_INSTRUCTIONS avx512vbmi
#elif defined(__AVX512BW__)
#define GLOBALQ_ABI_INSTRUCTIONS avx512
#elif defined(__AVX2__)
#define GLOBALQ_ABI_INSTRUCTIONS avx2
#elif defined(__AVX__)
#define GLOBALQ_ABI_INSTRUCTIONS avx
#else
#define GLOBALQ_ABI_INSTRUCTIONS baseline
#endif

// loops that a user has switched off
#if defined(GLOBALQ_AVX2) && !GLOBALQ_AVX2
#define GLOBALQ_ABI_LOOPS _portable_loops
#elif defined(GLOBALQ_AVX512) && !GLOBALQ_AVX512
#define GLOBALQ_ABI_LOOPS _no_avx512_loops
#else
#define GLOBALQ_ABI_LOOPS
#endif

#if defined(__FAST_MATH__)
#define GLOBALQ_ABI_ARITHMETIC _fast_math
#else
#define GLOBALQ_ABI_ARITHMETIC
#endif

#define GLOBALQ_ABI_JOIN(instructions, loops, arithmetic) instructions##loops##arithmetic
#define GLOBALQ_ABI_NAME(instructions, loops, arithmetic) GLOBALQ_ABI_JOIN(instructions, loops, arithmetic)
/// globalq, for what is defined in it: `namespace GLOBALQ_ABI::levels {`.
#define GLOBALQ_ABI \
  globalq::inline GLOBALQ_ABI_NAME(GLOBALQ_ABI_INSTRUCTIONS, GLOBALQ_ABI_LOOPS, GLOBALQ_ABI_ARITHMETIC)

#endif
