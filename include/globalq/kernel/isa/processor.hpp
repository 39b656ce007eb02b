// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: which instruction sets the processor supports, with registers that the operating system saves.

#include "../../core/detail/abi.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdint>

namespace GLOBALQ_ABI::kernel::isa {

/// Always true.
inline bool runs_baseline() { return true; }

#if defined(__x86_64__)
namespace detail {

struct cpuid_words {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
inline cpuid_words cpuid(unsigned leaf) {
  cpuid_words w;
  __get_cpuid_count(leaf, 0, &w.a, &w.b, &w.c, &w.d);  // leaves 0 if the processor does not support the leaf
  return w;
}

/// Whether the operating system saves these parts of the extended state (bits of XCR0).
inline bool saves(std::uint32_t parts) {
  constexpr unsigned os_uses_xsave = 1U << 27;
  if ((cpuid(1).c & os_uses_xsave) == 0) return false;
  std::uint32_t low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & parts) == parts;
}

constexpr bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

}  // namespace detail

/// x86-64-v3: AVX2, BMI1, BMI2, F16C, FMA, LZCNT, MOVBE.
/// @source System V ABI, AMD64 supplement, table 3.1; Intel SDM volume 2, CPUID
inline bool runs_avx2() {
  using namespace detail;
  constexpr unsigned fma = 1U << 12, movbe = 1U << 22, f16c = 1U << 29, avx = 1U << 28;
  constexpr unsigned bmi1 = 1U << 3, avx2 = 1U << 5, bmi2 = 1U << 8, lzcnt = 1U << 5;
  return saves(0x6) && has(cpuid(1).c, fma | movbe | f16c | avx) && has(cpuid(7).b, bmi1 | avx2 | bmi2) &&
         has(cpuid(0x80000001U).c, lzcnt);
}

/// x86-64-v4: also AVX-512 F, BW, CD, DQ and VL.
inline bool runs_avx512() {
  using namespace detail;
  constexpr unsigned f = 1U << 16, dq = 1U << 17, cd = 1U << 28, bw = 1U << 30, vl = 1U << 31;
  return runs_avx2() && saves(0xe6) && has(cpuid(7).b, f | dq | cd | bw | vl);
}

/// Also VBMI and VBMI2.
inline bool runs_avx512vbmi() {
  constexpr unsigned vbmi = 1U << 1, vbmi2 = 1U << 6;
  return runs_avx512() && detail::has(detail::cpuid(7).c, vbmi | vbmi2);
}
#endif

/// Whether the processor supports the instructions that this source is compiled for.
inline bool runs_native() {
#if defined(__AVX512VBMI2__)
  return runs_avx512vbmi();
#elif defined(__AVX512BW__)
  return runs_avx512();
#elif defined(__AVX2__)
  return runs_avx2();
#else
  return runs_baseline();
#endif
}

}  // namespace GLOBALQ_ABI::kernel::isa
