// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: hides a float operation of vectors from compilers, for which intrinsics are operators like others.

#include "../../core/arithmetic.hpp"

#if GLOBALQ_AVX2 || GLOBALQ_AVX512

#include <immintrin.h>

namespace GLOBALQ_ABI::kernel {

/// The value, which compilers may neither reorder (-ffast-math) nor fuse with the next operation.
GLOBALQ_ALWAYS_INLINE __m256 as_is(__m256 v) {
  __asm__("" : "+x"(v));
  return v;
}

}  // namespace GLOBALQ_ABI::kernel

#endif
