// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: sets rounding to nearest with subnormals, independent of the caller's settings.
///
/// Trainers enable flush-to-zero (-ffast-math does so for the whole program, torch.set_flush_denormal at run time).
/// Workers with different settings would compute different bits. Each thread therefore sets the IEEE default before its
/// share of the work, and restores the caller's setting afterwards. Reading the setting waits for the thread's pending
/// instructions, some tens of nanoseconds, so it is done once per share, not per block.

#include "../core/detail/abi.hpp"

#if defined(__SSE2__) || defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace GLOBALQ_ABI::kernel {

/// Sets the IEEE default floating-point environment of this thread for its lifetime.
class float_environment {
 public:
#if defined(__SSE2__) || defined(__x86_64__)
  float_environment() : saved_(_mm_getcsr()) {
    if (differs()) _mm_setcsr(standard);
  }
  ~float_environment() {
    if (differs()) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned standard = 0x1f80;  // round to nearest, subnormals, all exceptions masked
  static constexpr unsigned raised = 0x3f;      // flags of past exceptions, not settings
  bool differs() const { return (saved_ & ~raised) != standard; }
  unsigned saved_;
#elif defined(__aarch64__)
  float_environment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~float_environment() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  std::uint64_t saved_ = 0;
#else
  float_environment() {}
  ~float_environment() {}

 private:
#endif
 public:
  float_environment(float_environment const&) = delete;
  float_environment& operator=(float_environment const&) = delete;
};

}  // namespace GLOBALQ_ABI::kernel
