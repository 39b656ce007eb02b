// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the number types of vectors. kernel/load_store.hpp reads and writes them.

#include "arithmetic.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace GLOBALQ_ABI {

/// IEEE binary16 as stored: two bytes on every machine, even if the compiler has no such type.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  GLOBALQ_FUNCTION explicit float16(float x) : bits(round(x)) {}
  GLOBALQ_FUNCTION explicit operator float() const { return widen(bits); }

  /// Exact; NaN becomes quiet.
  GLOBALQ_FUNCTION static float widen(std::uint16_t h) {
    // only integers are conditional: a float operation in one case only would become a branch in loops
    std::uint32_t const magnitude = h & 0x7fffU;
    bool const tiny = magnitude < 0x0400U, special = magnitude >= 0x7c00U;
    std::uint32_t const raised = (magnitude << 13) + (tiny ? 113U << 23 : 112U << 23);
    std::uint32_t const finite = bits_of(float_of(raised) - float_of(tiny ? 113U << 23 : 0U));
    std::uint32_t const quiet = magnitude > 0x7c00U ? 1U << 22 : 0U;
    return float_of((finite + (special ? 112U << 23 : 0U)) | quiet |
                    (static_cast<std::uint32_t>(h & 0x8000U) << 16));
  }

  /// To nearest, ties to even; overflow beyond 65,504 gives infinity; NaN stays NaN.
  GLOBALQ_FUNCTION static std::uint16_t round(float x) {
    std::uint32_t const b = bits_of(x);
    std::uint32_t const m = b & float_magnitude;
    std::uint32_t const normal = (m - (112U << 23) + 0x0fffU + ((m >> 13) & 1U)) >> 13;
    std::uint32_t const tiny = bits_of(float_of(m < 0x38800000U ? m : 0U) + 0.5F) - 0x3f000000U;
    std::uint32_t const finite = m < 0x38800000U ? tiny : (normal < 0x7c00U ? normal : 0x7c00U);
    std::uint32_t const special = m > float_infinity ? 0x7e00U : 0x7c00U;
    return static_cast<std::uint16_t>((m >= float_infinity ? special : finite) | ((b >> 16) & 0x8000U));
  }

  /// To a neighbor: the larger one if a uniform word is below the share of the gap times 2^32. Unbiased, below 2^-14 up
  /// to 2^-32 of a gap. 2^16 and more, and NaN, give infinity.
  GLOBALQ_FUNCTION static std::uint16_t round(float x, std::uint32_t word) {
    std::uint32_t const b = bits_of(x);
    std::uint32_t const m = b & float_magnitude;
    constexpr std::uint32_t normal = 0x38800000U;  // 2^-14
    // the part up to 2^-14 and the part above it: a choice would become a branch in loops
    float const gaps = multiply(float_of(m < normal ? m : normal), 0x1p24F);
    auto const whole = static_cast<std::int32_t>(gaps);
    auto const threshold = static_cast<std::uint32_t>((gaps - static_cast<float>(whole)) * 0x1p32F);
    std::uint32_t const below = static_cast<std::uint32_t>(whole) + (word < threshold ? 1U : 0U);
    std::uint32_t const above = ((m > normal ? m : normal) - normal + (~word >> 19)) >> 13;
    std::uint32_t const finite = below + above;
    return static_cast<std::uint16_t>((finite < 0x7c00U ? finite : 0x7c00U) | ((b >> 16) & 0x8000U));
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

  /// To nearest, ties to even; overflow beyond the largest finite number gives infinity; NaN stays NaN.
  GLOBALQ_FUNCTION static std::uint16_t round(float x) {
    std::uint32_t const b = bits_of(x);
    bool const nan = (b & float_magnitude) > float_infinity;
    return static_cast<std::uint16_t>(nan ? 0x7fc0U : (b + 0x7fffU + ((b >> 16) & 1U)) >> 16);
  }

  /// To a neighbor, as float16::round(); exactly unbiased. NaN gives infinity or NaN.
  GLOBALQ_FUNCTION static std::uint16_t round(float x, std::uint32_t word) {
    std::uint32_t const b = bits_of(x);
    std::uint32_t const sum = (b & float_magnitude) + (~word >> 16);
    return static_cast<std::uint16_t>(((sum < 0x7fff0000U ? sum : 0x7fff0000U) | (b & ~float_magnitude)) >>
                                      16);
  }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<bfloat16>);

/// The type of a vector's values.
enum class dtype : std::uint8_t { float32, float64, float16, bfloat16 };

/// The dtype of a C++ type; specialize it for your own type with the same representation.
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
// on ARM, g++ has the type in C++ since version 13, although earlier versions define the macro
#if defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__) && !defined(__clang__) && \
    (defined(__x86_64__) || __GNUC__ >= 13)
template <>
struct dtype_of<_Float16> : std::integral_constant<dtype, dtype::float16> {};
#endif
#if defined(__CUDACC__)
}  // namespace GLOBALQ_ABI
struct __half;
struct __nv_bfloat16;
namespace GLOBALQ_ABI {
template <>
struct dtype_of<::__half> : std::integral_constant<dtype, dtype::float16> {};
template <>
struct dtype_of<::__nv_bfloat16> : std::integral_constant<dtype, dtype::bfloat16> {};
#endif

/// A type whose vectors globalq averages.
template <class T>
concept Scalar = requires {
  dtype_of<std::remove_const_t<T>>::value;
};

/// Bytes of one value.
GLOBALQ_FUNCTION constexpr std::size_t size_of(dtype type) {
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
GLOBALQ_FUNCTION constexpr double largest(dtype type) {
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

/// A vector to read, whose type is known at run time.
struct const_vector {
  void const* data = nullptr;
  dtype type = dtype::float32;
};

/// A vector to write, whose type is known at run time.
struct mutable_vector {
  void* data = nullptr;
  dtype type = dtype::float32;
};

/// The vector from value @p first on. Computes addresses as integers: an empty result may have an invalid address.
inline mutable_vector at(mutable_vector y, std::uint64_t first) {
  auto const address = reinterpret_cast<std::uintptr_t>(y.data) + first * size_of(y.type);
  return {reinterpret_cast<void*>(address), y.type};
}
inline const_vector at(const_vector x, std::uint64_t first) {
  return {at(mutable_vector{const_cast<void*>(x.data), x.type}, first).data, x.type};
}

/// Converts a float32 result in units of a scale to a value of the vector: multiplies by @c factor, then by @c post.
///
/// @c post is 1 unless the scale is near the ends of float32's range, where one factor would overflow or underflow.
struct store_scale {
  float factor = 1;
  float post = 1;
  double wide = 1;       ///< factor * post, for float64
  double wide_post = 1;  ///< then this power of two, if wide alone would overflow or underflow

  GLOBALQ_FUNCTION store_scale() {}
  /// scale * post for float64 near the ends of its range; post is a power of two. Above 1 the scale is rounded down.
  GLOBALQ_FUNCTION static store_scale in_two(double scale, double post) {
    store_scale s(scale);
    s.wide = post > 1 ? double_of(bits_of(scale) - 1) : scale;
    s.wide_post = post;
    return s;
  }
  /// Near the ends of the range the scale is rounded down, so that level times scale never exceeds the norm.
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
    return with_sign(multiply(with_sign(multiply(v, factor), bits_of(v)), post), bits_of(v));
  }
};

/// Sets value i to the quiet NaN or to zero.
GLOBALQ_FUNCTION void fill_value(mutable_vector y, std::uint64_t i, bool nan) {
  switch (y.type) {
    case dtype::float64:
      static_cast<std::uint64_t*>(y.data)[i] = nan ? double_nan : 0;
      return;
    case dtype::float16:
      static_cast<std::uint16_t*>(y.data)[i] = nan ? 0x7e00 : 0;
      return;
    case dtype::bfloat16:
      static_cast<std::uint16_t*>(y.data)[i] = nan ? 0x7fc0 : 0;
      return;
    default:
      static_cast<std::uint32_t*>(y.data)[i] = nan ? float_nan : 0;
  }
}

/// The bit pattern of |value i|, and that of infinity, as integers.
struct magnitude_of_value {
  std::uint64_t bits, infinity;
  GLOBALQ_FUNCTION magnitude_of_value(const_vector y, std::uint64_t i) {
    switch (y.type) {
      case dtype::float64:
        bits = static_cast<std::uint64_t const*>(y.data)[i] & double_magnitude;
        infinity = double_infinity;
        return;
      case dtype::float16:
      case dtype::bfloat16:
        bits = static_cast<std::uint16_t const*>(y.data)[i] & 0x7fffU;
        infinity = y.type == dtype::float16 ? 0x7c00U : 0x7f80U;
        return;
      default:
        bits = static_cast<std::uint32_t const*>(y.data)[i] & float_magnitude;
        infinity = float_infinity;
    }
  }
};

/// Replaces NaNs among values [first, first + count) by the quiet NaN, because processors propagate NaNs differently.
inline void make_nans_quiet(mutable_vector y, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t i = first; i < first + count; ++i) {
    magnitude_of_value const m({y.data, y.type}, i);
    if (m.bits > m.infinity) fill_value(y, i, true);
  }
}

/// Fills values [0, count) with the quiet NaN or with zero.
inline void fill(mutable_vector y, std::uint64_t count, bool nan) {
  for (std::uint64_t i = 0; i < count; ++i) fill_value(y, i, nan);
}

}  // namespace GLOBALQ_ABI
