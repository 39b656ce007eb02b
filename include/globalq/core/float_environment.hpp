// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: sets rounding to nearest with subnormals, independent of the caller's settings.
///
/// Trainers enable flush-to-zero (-ffast-math does so for the whole program, torch.set_flush_denormal at run time).
/// Workers with different settings would compute different bits. Whatever workers compare or send is therefore computed
/// with the IEEE default: in calls, by each thread for its share of the work, and where operators, levels, compressors
/// and candidates are made. The caller's setting is restored afterwards. Reading the setting waits for the thread's pending
/// instructions, some tens of nanoseconds, so it is done once per share, not per block.

#include "detail/abi.hpp"

#if defined(__SSE2__) || defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace GLOBALQ_ABI {

/// Sets the IEEE default floating-point environment of this thread for its lifetime.
class float_environment {
 public:
#if defined(__SSE2__) || defined(__x86_64__)
  float_environment() : saved_(_mm_getcsr()) {
    if (differs()) _mm_setcsr(standard);
    keep_order();
  }
  ~float_environment() {
    keep_order();
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
    keep_order();
  }
  ~float_environment() {
    keep_order();
    asm volatile("msr fpcr, %0" : : "r"(saved_));
  }

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

 private:
  /// Values in memory are not read before the environment is set, and are written before it is restored.
  static void keep_order() { asm volatile("" : : : "memory"); }
};

/// Returns f() computed in the default environment: for numbers in registers, which a compiler may otherwise compute
/// before the environment is set.
template <class F>
auto computed_exactly(F const& f) {
  struct call {
    [[gnu::noinline]] static auto of(F const& g) { return g(); }
  };
  float_environment const exact;
  return call::of(f);
}

}  // namespace GLOBALQ_ABI
