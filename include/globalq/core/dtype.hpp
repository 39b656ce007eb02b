// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the number types a vector may have, and how tiles of them are read and written.
///
/// The type is known at run time only: a tile is converted to float32 in L1 (or in registers) and everything after
/// that is written once. This keeps the number of compiled kernels independent of the number of types.

#include "arithmetic.hpp"

#include <cstddef>
#include <type_traits>

namespace globalq {

/// IEEE binary16 as stored; two bytes on every machine, also where the compiler has no such type.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  GLOBALQ_FUNCTION explicit float16(float x) : bits(round(x)) {}
  GLOBALQ_FUNCTION explicit operator float() const { return widen(bits); }

  /// Exact.
  GLOBALQ_FUNCTION static float widen(std::uint16_t h) {
    std::uint32_t const magnitude = h & 0x7fffU;
    std::uint32_t const normal = (magnitude << 13) + (112U << 23);
    std::uint32_t const special = normal + (112U << 23);
    std::uint32_t const tiny =
        bits_of(multiply(static_cast<float>(static_cast<std::int32_t>(magnitude)), 0x1p-24F));
    std::uint32_t const finite = magnitude < 0x0400U ? tiny : normal;
    return float_of((magnitude >= 0x7c00U ? special : finite) |
                    (static_cast<std::uint32_t>(h & 0x8000U) << 16));
  }

  /// To nearest, ties to even; beyond 65,504 to infinity; NaN stays NaN.
  GLOBALQ_FUNCTION static std::uint16_t round(float x) {
    std::uint32_t const b = bits_of(x);
    std::uint32_t const m = b & float_magnitude;
    std::uint32_t const normal = (m - (112U << 23) + 0x0fffU + ((m >> 13) & 1U)) >> 13;
    std::uint32_t const tiny = bits_of(float_of(m < 0x38800000U ? m : 0U) + 0.5F) - 0x3f000000U;
    std::uint32_t const finite = m < 0x38800000U ? tiny : (normal < 0x7c00U ? normal : 0x7c00U);
    std::uint32_t const special = m > float_infinity ? 0x7e00U : 0x7c00U;
    return static_cast<std::uint16_t>((m >= float_infinity ? special : finite) | ((b >> 16) & 0x8000U));
  }
};

/// bfloat16 as stored: the upper half of a float32.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  GLOBALQ_FUNCTION explicit bfloat16(float x) : bits(round(x)) {}
  GLOBALQ_FUNCTION explicit operator float() const { return widen(bits); }

  /// Exact.
  GLOBALQ_FUNCTION static float widen(std::uint16_t h) {
    return float_of(static_cast<std::uint32_t>(h) << 16);
  }

  /// To nearest, ties to even; beyond the largest finite number to infinity; NaN stays NaN.
  GLOBALQ_FUNCTION static std::uint16_t round(float x) {
    std::uint32_t const b = bits_of(x);
    bool const nan = (b & float_magnitude) > float_infinity;
    return static_cast<std::uint16_t>(nan ? 0x7fc0U : (b + 0x7fffU + ((b >> 16) & 1U)) >> 16);
  }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<bfloat16>);

/// The type of a vector's values.
enum class dtype : std::uint8_t { float32, float64, float16, bfloat16 };

/// The dtype of a C++ type; specialise it for a layout-compatible type of your own.
template <class T>
struct dtype_of {};
template <>
struct dtype_of<float> : std::integral_constant<dtype, dtype::float32> {};
template <>
struct dtype_of<double> : std::integral_constant<dtype, dtype::float64> {};
template <>
struct dtype_of<float16> : std::integral_constant<dtype, dtype::float16> {};
template <>
struct dtype_of<bfloat16> : std::integral_constant<dtype, dtype::bfloat16> {};
#if defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__) && !defined(__clang__)
template <>
struct dtype_of<_Float16> : std::integral_constant<dtype, dtype::float16> {};
#endif

/// A type whose vectors globalq averages.
template <class T>
concept Scalar = requires {
  dtype_of<std::remove_const_t<T>>::value;
};

/// Bytes of one value.
constexpr std::size_t size_of(dtype type) {
  switch (type) {
    case dtype::float64:
      return 8;
    case dtype::float16:
    case dtype::bfloat16:
      return 2;
    default:
      return 4;
  }
}

constexpr char const* name_of(dtype type) {
  switch (type) {
    case dtype::float64:
      return "float64";
    case dtype::float16:
      return "float16";
    case dtype::bfloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

/// The largest finite value of a type.
constexpr double largest(dtype type) {
  switch (type) {
    case dtype::float64:
      return 0x1.fffffffffffffp1023;
    case dtype::float16:
      return 65504.0;
    case dtype::bfloat16:
      return 0x1.fep127;
    default:
      return 0x1.fffffep127;
  }
}

/// A vector to read, its type known at run time.
struct const_vector {
  void const* data = nullptr;
  dtype type = dtype::float32;
};

/// A vector to write, its type known at run time.
struct mutable_vector {
  void* data = nullptr;
  dtype type = dtype::float32;
};

namespace detail {

/// A number known when compiling.
template <int N>
struct fixed_count {
  GLOBALQ_FUNCTION constexpr operator int() const { return N; }
};

/// Calls f with a compile-time count where that is known to be the usual one, so that its loop has no tail.
template <int Usual, class F>
GLOBALQ_FUNCTION void with_count(int count, F&& f) {
  if (count == Usual)
    f(fixed_count<Usual>{});
  else
    f(count);
}

template <int N, class Stored, class Convert>
GLOBALQ_FUNCTION void convert_in(Stored const* in, int count, float* out, Convert const& convert) {
  Stored const* __restrict source = in;
  float* __restrict target = out;
  with_count<N>(count, [&](auto n) {
    for (int i = 0; i < n; ++i) target[i] = convert(source[i]);
  });
}

}  // namespace detail

/// Reads values [first, first + count) times 2^exponent as float32.
///
/// The product is exact unless it leaves float32's range; float64 is rounded to float32 after it.
/// @param exponent  from -126 to 127; for float64 from -1022 to 1023
/// @param buffer    N floats, filled unless the values can be read in place
/// @returns         where the count floats are: @p buffer, or the vector itself (float32 with exponent 0)
template <int N>
GLOBALQ_FUNCTION float const* load(const_vector x, std::uint64_t first, int count, int exponent,
                                   float* buffer) {
  switch (x.type) {
    case dtype::float64: {
      double const factor = power_of_two(exponent);
      detail::convert_in<N>(static_cast<double const*>(x.data) + first, count, buffer,
                            [factor](double v) { return static_cast<float>(v * factor); });
      return buffer;
    }
    case dtype::float16: {
      float const factor = power_of_two_float(exponent);
      detail::convert_in<N>(static_cast<std::uint16_t const*>(x.data) + first, count, buffer,
                            [factor](std::uint16_t v) { return multiply(float16::widen(v), factor); });
      return buffer;
    }
    case dtype::bfloat16: {
      float const factor = power_of_two_float(exponent);
      detail::convert_in<N>(static_cast<std::uint16_t const*>(x.data) + first, count, buffer,
                            [factor](std::uint16_t v) { return multiply(bfloat16::widen(v), factor); });
      return buffer;
    }
    default: {
      float const* const values = static_cast<float const*>(x.data) + first;
      if (exponent == 0) return values;
      float const factor = power_of_two_float(exponent);
      detail::convert_in<N>(values, count, buffer, [factor](float v) { return multiply(v, factor); });
      return buffer;
    }
  }
}

/// How a float32 result in units of a scale becomes a value of the vector: multiply by @c factor, then by @c post.
///
/// @c post is 1 unless the scale lies near the ends of float32's range, where one float factor would underflow.
struct store_scale {
  float factor = 1;
  float post = 1;
  double wide = 1;       ///< factor * post, for float64
  double wide_post = 1;  ///< then this power of two, where wide alone would leave the range

  store_scale() = default;
  /// scale * post for float64 near the ends of its range; post is a power of two. Above 1 the scale is rounded down.
  GLOBALQ_FUNCTION static store_scale in_two(double scale, double post) {
    store_scale s(scale);
    s.wide = post > 1 ? double_of(bits_of(scale) - 1) : scale;
    s.wide_post = post;
    return s;
  }
  /// Near the ends of the range the scale is rounded down: as many levels as make up the norm must not exceed it.
  GLOBALQ_FUNCTION explicit store_scale(double scale) : wide(scale) {
    int const e = exponent_of(scale);
    if (e > 900 && e < 1024) wide = double_of(bits_of(scale) - 1);
    if (scale == 0 || (e > -90 && e < 90)) {
      factor = static_cast<float>(scale);
    } else {
      int const shift = e < -126 ? -126 : (e > 120 ? 120 : e);
      post = power_of_two_float(shift);
      double const rest = scale * power_of_two(-shift);
      double const down = double_of(bits_of(rest) & ~std::uint64_t{0x1fffffff});
      factor = rest < 0x1p120 ? static_cast<float>(down) : 0x1p120F;  // only float64 has such scales
    }
  }

  GLOBALQ_FUNCTION float operator()(float v) const {
    return multiply(with_sign(multiply(v, factor), bits_of(v)), post);
  }
};

namespace detail {

/// Rounds scaled values, plus what is there with Add, to a type of 16 bits; returns the largest magnitude's bit pattern.
template <class Half, bool Add>
GLOBALQ_FUNCTION std::uint32_t convert_out(float const* in, int count, store_scale const scale,
                                           std::uint16_t* out) {
  float const* __restrict source = in;
  std::uint16_t* __restrict target = out;
  std::uint32_t top = 0;
  for (int i = 0; i < count; ++i) {
    float const v = scale(source[i]);
    std::uint16_t const r = Half::round(Add ? Half::widen(target[i]) + v : v);
    std::uint32_t const m = r & 0x7fffU;
    top = top < m ? m : top;
    target[i] = r;
  }
  return top;
}

}  // namespace detail

/// Writes v[0 .. count) times a scale as values [first, first + count), or adds it to them.
/// @returns true when a result is beyond the type's range (stored as infinity then)
template <int N, bool Add = false>
GLOBALQ_FUNCTION bool store(mutable_vector y, std::uint64_t first, int count, store_scale const scale,
                            float const* v) {
  float const* __restrict source = v;
  switch (y.type) {
    case dtype::float64: {
      double* __restrict out = static_cast<double*>(y.data) + first;
      std::uint64_t top = 0;
      for (int i = 0; i < count; ++i) {
        double const p = static_cast<double>(source[i]) * scale.wide;
        std::uint64_t const sign = bits_of(static_cast<double>(source[i])) & ~double_magnitude;
        double const value = double_of((bits_of(p) & double_magnitude) | sign) * scale.wide_post;
        double const r = Add ? out[i] + value : value;
        std::uint64_t const m = bits_of(r) & double_magnitude;
        top = top < m ? m : top;
        out[i] = r;
      }
      return top >= double_infinity;
    }
    case dtype::float16:
      return detail::convert_out<float16, Add>(source, count, scale,
                                               static_cast<std::uint16_t*>(y.data) + first) >= 0x7c00U;
    case dtype::bfloat16:
      return detail::convert_out<bfloat16, Add>(source, count, scale,
                                                static_cast<std::uint16_t*>(y.data) + first) >= 0x7f80U;
    default: {
      float* __restrict out = static_cast<float*>(y.data) + first;
      std::uint32_t top = 0;
      detail::with_count<N>(count, [&](auto n) {
        for (int i = 0; i < n; ++i) {
          float const r = Add ? out[i] + scale(source[i]) : scale(source[i]);
          std::uint32_t const m = bits_of(r) & float_magnitude;
          top = top < m ? m : top;
          out[i] = r;
        }
      });
      return top >= float_infinity;
    }
  }
}

/// Fills values [first, first + count) with the quiet NaN or with zero.
inline void fill(mutable_vector y, std::uint64_t count, bool nan) {
  switch (y.type) {
    case dtype::float64:
      for (std::uint64_t i = 0; i < count; ++i) static_cast<std::uint64_t*>(y.data)[i] = nan ? double_nan : 0;
      return;
    case dtype::float16:
    case dtype::bfloat16: {
      std::uint16_t const pattern = !nan ? 0 : (y.type == dtype::float16 ? 0x7e00 : 0x7fc0);
      for (std::uint64_t i = 0; i < count; ++i) static_cast<std::uint16_t*>(y.data)[i] = pattern;
      return;
    }
    default:
      for (std::uint64_t i = 0; i < count; ++i) static_cast<std::uint32_t*>(y.data)[i] = nan ? float_nan : 0;
  }
}

}  // namespace globalq
