// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: scalar operations that give the same bits on every machine.
///
/// Every function here is exact or correctly rounded, branch-free where a hot loop calls it, and callable on host and
/// device. They work on bit patterns as integers, so that neither -ffast-math nor flush-to-zero can change a result.

#include "detail/abi.hpp"

#include <bit>
#include <cstdint>

/// Marks a function that kernels inline on host and device.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define GLOBALQ_FUNCTION __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define GLOBALQ_FUNCTION inline __attribute__((always_inline))
#else
#define GLOBALQ_FUNCTION inline
#endif

/// Marks a template that may, on the host, also be called with a host-only function.
#if defined(__CUDACC__)
#define GLOBALQ_ANY_FUNCTION _Pragma("nv_exec_check_disable")
#else
#define GLOBALQ_ANY_FUNCTION
#endif

/// Marks a host function that must be inlined.
#if defined(__GNUC__)
#define GLOBALQ_ALWAYS_INLINE [[gnu::always_inline]] inline
#else
#define GLOBALQ_ALWAYS_INLINE inline
#endif

/// Marks a function that consists of a loop. It is not inlined on a host, so that vectorization does not depend on the
/// surrounding code.
#if defined(__GNUC__) && !defined(__CUDACC__) && !defined(__HIPCC__)
#define GLOBALQ_LOOP [[gnu::noinline]] inline
#else
#define GLOBALQ_LOOP GLOBALQ_FUNCTION
#endif

/// Before a loop: its iterations are independent, which the compiler cannot prove because bytes may alias anything.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define GLOBALQ_INDEPENDENT _Pragma("GCC ivdep")
#else
#define GLOBALQ_INDEPENDENT
#endif

/// Before a loop of a device function: unroll it, so that indexed arrays stay in registers; or do not, so that there is
/// one copy of a long body. No effect on a host.
#if defined(__CUDA_ARCH__)
#define GLOBALQ_UNROLL _Pragma("unroll")
#define GLOBALQ_NO_UNROLL _Pragma("unroll 1")
#else
#define GLOBALQ_UNROLL
#define GLOBALQ_NO_UNROLL
#endif

namespace GLOBALQ_ABI {

/// In place of a template argument: the size is given at run time, as with std::dynamic_extent.
inline constexpr std::uint32_t dynamic = 0;

/// The order of a maximum norm.
inline constexpr std::uint32_t infinity = 0xffffffffU;

GLOBALQ_FUNCTION std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
GLOBALQ_FUNCTION std::uint64_t bits_of(double x) { return __builtin_bit_cast(std::uint64_t, x); }
GLOBALQ_FUNCTION float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
GLOBALQ_FUNCTION double double_of(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }

inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr std::uint32_t float_magnitude = 0x7fffffffU;
inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_nan = 0x7fc00000U;
inline constexpr std::uint64_t double_magnitude = 0x7fffffffffffffffULL;
inline constexpr std::uint64_t double_infinity = 0x7ff0000000000000ULL;
inline constexpr std::uint64_t double_nan = 0x7ff8000000000000ULL;

/// Correct also with -ffast-math, where std::isfinite is always true.
GLOBALQ_FUNCTION bool is_finite(float x) { return (bits_of(x) & float_magnitude) < float_infinity; }
GLOBALQ_FUNCTION bool is_finite(double x) { return (bits_of(x) & double_magnitude) < double_infinity; }

/// A product that is rounded once; device compilers never fuse it into a following sum.
GLOBALQ_FUNCTION float multiply(float a, float b) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
GLOBALQ_FUNCTION double multiply(double a, double b) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

/// The magnitude of @p a with the sign bit of @p sign. Also keeps a product in @p a from being fused into a sum.
GLOBALQ_FUNCTION float with_sign(float a, std::uint32_t sign) {
  return float_of((bits_of(a) & float_magnitude) | (sign & float_sign));
}

GLOBALQ_FUNCTION double with_sign(double a, std::uint64_t sign) {
  return double_of((bits_of(a) & double_magnitude) | (sign & ~double_magnitude));
}

GLOBALQ_FUNCTION constexpr std::uint32_t rotate_left(std::uint32_t x, int r) {
  return (x << (r & 31)) | (x >> ((32 - r) & 31));
}

/// 2^e as a float, exact.
/// @pre -126 <= e <= 127
GLOBALQ_FUNCTION float power_of_two_float(int e) {
  return float_of(static_cast<std::uint32_t>(127 + e) << 23);
}

/// 2^e as a double, exact; 0 below 2^-1074.
/// @pre e <= 1023
GLOBALQ_FUNCTION double power_of_two(int e) {
  if (e >= -1022) return double_of(static_cast<std::uint64_t>(1023 + e) << 52);
  return e < -1074 ? 0.0 : double_of(std::uint64_t{1} << (e + 1074));
}

/// Number of bits up to the highest 1.
GLOBALQ_FUNCTION constexpr int bit_width(std::uint64_t x) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  int bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
#else
  return x == 0 ? 0 : 64 - __builtin_clzll(x);
#endif
}

/// The e with 2^e <= |x| < 2^(e+1), also for subnormal x; -1075 for zero.
GLOBALQ_FUNCTION int exponent_of(double x) {
  std::uint64_t const bits = bits_of(x) & double_magnitude;
  int const field = static_cast<int>(bits >> 52);
  if (field != 0) return field - 1023;
  return bit_width(bits) - 1075;
}

/// Prevents a double product or quotient from being fused with, or reassociated into, the next operation: scales that
/// all workers compute must not depend on compiler flags.
GLOBALQ_FUNCTION double rounded(double x) {
#if defined(__CUDA_ARCH__)
  double stored;  // an addition with explicit rounding is never fused
  asm("add.rn.f64 %0, %1, 0d8000000000000000;" : "=d"(stored) : "d"(x));
#elif defined(__GNUC__) && defined(__x86_64__)
  double stored = x;  // in a register; a volatile object is in memory
  asm volatile("" : "+x"(stored));
#elif defined(__GNUC__) && defined(__aarch64__)
  double stored = x;
  asm volatile("" : "+w"(stored));
#else
  double volatile stored = x;
#endif
  return stored;
}

/// The quotient of float64, rounded to float32. A GPU divides float32, which is faster and gives the same bits: rounding a
/// quotient of numbers of 24 bits to 53 bits first never changes it, because 53 >= 2 * 24 + 2.
GLOBALQ_FUNCTION float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return static_cast<float>(static_cast<double>(a) / static_cast<double>(b));
#endif
}

/// Keeps the order of additions in host code compiled with -ffast-math; no cost otherwise.
template <class T>
GLOBALQ_FUNCTION void keep_order(T& sums) {
#if defined(__FAST_MATH__) && !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+m"(sums));
#else
  (void)sums;
#endif
}

/// Zero bits below the lowest 1; 64 if there is none.
GLOBALQ_ALWAYS_INLINE constexpr int trailing_zeros(std::uint64_t x) {
  return x == 0 ? 64 : __builtin_ctzll(x);
}

/// Number of bits that are 1.
GLOBALQ_ALWAYS_INLINE constexpr int one_bits(std::uint64_t x) { return __builtin_popcountll(x); }

template <class T>
GLOBALQ_FUNCTION constexpr T smaller(T a, T b) {
  return b < a ? b : a;
}

/// ceil(log2 n) for n >= 1.
GLOBALQ_FUNCTION constexpr int log2_ceil(std::uint64_t n) { return bit_width(n - (n != 0)); }

/// ceil(a / b) without overflow.
/// @pre b > 0
template <class T>
GLOBALQ_FUNCTION constexpr T divide_up(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Divides many numbers by the same value, by a product and a shift each. Dividing by 0 gives 0.
/// @source Granlund and Montgomery 1994, theorem 4.2
class divisor {
 public:
  /// @pre value <= 2^48
  constexpr divisor(std::uint64_t value = 0) : value_(value) {
    __extension__ using wide = unsigned __int128;
    if (value == 0) return;
    shift_ = log2_ceil(value);
    factor_ = static_cast<std::uint64_t>((wide{1} << (48 + shift_)) / value) + 1;
  }
  GLOBALQ_FUNCTION constexpr operator std::uint64_t() const { return value_; }

  /// floor(n / value), exact.
  /// @pre n < 2^48
  GLOBALQ_FUNCTION constexpr std::uint64_t quotient(std::uint64_t n) const {
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((wide{n << 16} * factor_) >> 64) >> shift_;
  }

 private:
  std::uint64_t value_, factor_ = 0;
  int shift_ = 0;
};

namespace detail {

/// A number known at compile time.
template <int N>
struct fixed_count {
  GLOBALQ_FUNCTION constexpr operator int() const { return N; }
};

/// Calls f with a compile-time count if it is the usual one, so that its loop has no tail.
template <int Usual, class F>
GLOBALQ_FUNCTION void with_count(int count, F&& f) {
  if (count == Usual)
    f(fixed_count<Usual>{});
  else
    f(count);
}

}  // namespace detail

}  // namespace GLOBALQ_ABI
