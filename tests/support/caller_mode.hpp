// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Floating-point settings that a caller of the library may have.

#include <cfenv>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace support {

enum class mode { standard, upward, flushing };

/// Sets the floating-point settings of this thread for its lifetime.
struct caller_mode {
  explicit caller_mode(mode m) {
    if (m == mode::upward) std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
    if (m == mode::flushing) _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
  }
  ~caller_mode() {
    std::fesetround(FE_TONEAREST);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() & ~0x8040U);
#endif
  }
};

}  // namespace support
