// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the number types a vector may have, and how tiles of them are read and written.
///
/// The type is known at run time only: a tile is converted to float32 in L1 (or in registers) and everything after
/// that is written once. This keeps the number of compiled kernels independent of the number of types.

#include "detail/avx512.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace GLOBALQ_ABI {

/// IEEE binary16 as stored; two bytes on every machine, also where the compiler has no such type.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  GLOBALQ_FUNCTION explicit float16(float x) : bits(round(x)) {}
  GLOBALQ_FUNCTION explicit operator float() const { return widen(bits); }

  /// Exact; NaN becomes quiet.
  GLOBALQ_FUNCTION static float widen(std::uint16_t h) {
    // nothing here is conditional but integers: float operations in one case only would become a branch of a loop
    std::uint32_t const magnitude = h & 0x7fffU;
    bool const tiny = magnitude < 0x0400U, special = magnitude >= 0x7c00U;
    std::uint32_t const raised = (magnitude << 13) + (tiny ? 113U << 23 : 112U << 23);
    std::uint32_t const finite = bits_of(float_of(raised) - float_of(tiny ? 113U << 23 : 0U));
    std::uint32_t const quiet = magnitude > 0x7c00U ? 1U << 22 : 0U;
    return float_of((finite + (special ? 112U << 23 : 0U)) | quiet |
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

/// The vector from value @p first on. Addresses are numbers here: what begins there may be empty and lie nowhere.
inline mutable_vector at(mutable_vector y, std::uint64_t first) {
  auto const address = reinterpret_cast<std::uintptr_t>(y.data) + first * size_of(y.type);
  return {reinterpret_cast<void*>(address), y.type};
}
inline const_vector at(const_vector x, std::uint64_t first) {
  return {at(mutable_vector{const_cast<void*>(x.data), x.type}, first).data, x.type};
}

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

/// Values as float32, times a factor.
template <int N, class Convert, class Stored, class Factor>
GLOBALQ_LOOP void convert_in(Stored const* in, int count, Factor factor, float* out) {
  if constexpr (requires { requires Convert::converts; }) return Convert::convert(in, count, factor, out);
  with_count<N>(count, [=](auto n) {
    Stored const* __restrict source = in;
    float* __restrict target = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) target[i] = Convert::scaled(source[i], factor);
  });
}

/// What convert_in() does to a value.
struct from_float64 {
  GLOBALQ_FUNCTION static float scaled(double v, double factor) { return static_cast<float>(v * factor); }
};
template <class Half>
struct from_half {
  GLOBALQ_FUNCTION static float scaled(std::uint16_t v, float factor) {
    return multiply(Half::widen(v), factor);
  }
#if GLOBALQ_AVX512
  /// The loop, where instructions convert.
  static constexpr bool converts = true;
  static void convert(std::uint16_t const* in, int count, float factor, float* out) {
    for_each_vector(count, [=](int i, __mmask16 lanes) {
      __m512 const wide = halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, in + i));
      _mm512_mask_storeu_ps(out + i, lanes, _mm512_maskz_mul_ps(lanes, wide, _mm512_set1_ps(factor)));
    });
  }
#endif
};
struct from_float32 {
  GLOBALQ_FUNCTION static float scaled(float v, float factor) { return multiply(v, factor); }
};

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
    case dtype::float64:
      detail::convert_in<N, detail::from_float64>(static_cast<double const*>(x.data) + first, count,
                                                  power_of_two(exponent), buffer);
      return buffer;
    case dtype::float16:
      detail::convert_in<N, detail::from_half<float16>>(static_cast<std::uint16_t const*>(x.data) + first,
                                                        count, power_of_two_float(exponent), buffer);
      return buffer;
    case dtype::bfloat16:
      detail::convert_in<N, detail::from_half<bfloat16>>(static_cast<std::uint16_t const*>(x.data) + first,
                                                         count, power_of_two_float(exponent), buffer);
      return buffer;
    default: {
      float const* const values = static_cast<float const*>(x.data) + first;
      if (exponent == 0) return values;
      detail::convert_in<N, detail::from_float32>(values, count, power_of_two_float(exponent), buffer);
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
    return with_sign(multiply(with_sign(multiply(v, factor), bits_of(v)), post), bits_of(v));
  }
};

namespace detail {

/// Writes scaled values, or adds them to what is there. Returns the largest magnitude's bit pattern.
template <int N, class Type, bool Add, class Stored>
GLOBALQ_LOOP auto convert_out(float const* in, int count, store_scale const& to, Stored* out) {
  using word = typename Type::word;
  if constexpr (requires { requires Type::converts; }) return Type::template convert<Add>(in, count, to, out);
  store_scale const scale = to;
  word largest = 0;
  with_count<N>(count, [=, &largest](auto n) {
    float const* __restrict source = in;
    Stored* __restrict target = out;
    int const end = n;
    word top = 0;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      Stored const r = Type::template stored<Add>(source[i], scale, target[i]);
      word const m = Type::magnitude(r);
      top = top < m ? m : top;
      target[i] = r;
    }
    largest = top;
  });
  return largest;
}

/// What convert_out() does to a value.
struct to_float64 {
  using word = std::uint64_t;
  template <bool Add>
  GLOBALQ_FUNCTION static double stored(float v, store_scale const& scale, double there) {
    double const p = static_cast<double>(v) * scale.wide;
    std::uint64_t const sign = bits_of(static_cast<double>(v)) & ~double_magnitude;
    double const value = double_of((bits_of(p) & double_magnitude) | sign) * scale.wide_post;
    return Add ? there + value : value;
  }
  GLOBALQ_FUNCTION static std::uint64_t magnitude(double r) { return bits_of(r) & double_magnitude; }
};
template <class Half>
struct to_half {
  using word = std::uint32_t;
  template <bool Add>
  GLOBALQ_FUNCTION static std::uint16_t stored(float v, store_scale const& scale, std::uint16_t there) {
    float const value = scale(v);
    return Half::round(Add ? Half::widen(there) + value : value);
  }
  GLOBALQ_FUNCTION static std::uint32_t magnitude(std::uint16_t r) { return r & 0x7fffU; }
#if GLOBALQ_AVX512
  static constexpr bool converts = true;
  template <bool Add>
  static std::uint32_t convert(float const* in, int count, store_scale const& scale, std::uint16_t* out) {
    if (scale.factor == 1 && scale.post == 1)
      return convert_scaled<Add>(in, count, out, [](__mmask16, __m512 v) { return v; });
    __m512 const factor = _mm512_set1_ps(scale.factor), post = _mm512_set1_ps(scale.post);
    return convert_scaled<Add>(in, count, out, [=](__mmask16 lanes, __m512 v) {
      return _mm512_maskz_mul_ps(lanes, _mm512_maskz_mul_ps(lanes, v, factor), post);
    });
  }

 private:
  template <bool Add, class Scale>
  static std::uint32_t convert_scaled(float const* in, int count, std::uint16_t* out, Scale const& scale) {
    __m256i top = _mm256_setzero_si256();
    for_each_vector(count, [=, &top](int i, __mmask16 lanes) {
      __m512 value = scale(lanes, _mm512_maskz_loadu_ps(lanes, in + i));
      if constexpr (Add)
        value =
            _mm512_maskz_add_ps(lanes, halves<Half>::widen(_mm256_maskz_loadu_epi16(lanes, out + i)), value);
      __m256i const r = halves<Half>::round(value);
      top = _mm256_max_epu16(top, _mm256_and_si256(r, _mm256_set1_epi16(0x7fff)));
      _mm256_mask_storeu_epi16(out + i, lanes, r);
    });
    std::uint16_t each[16], largest = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(each), top);
    for (std::uint16_t m : each) largest = largest < m ? m : largest;
    return largest;
  }
#endif
};
struct to_float32 {
  using word = std::uint32_t;
  template <bool Add>
  GLOBALQ_FUNCTION static float stored(float v, store_scale const& scale, float there) {
    return Add ? there + scale(v) : scale(v);
  }
  GLOBALQ_FUNCTION static std::uint32_t magnitude(float r) { return bits_of(r) & float_magnitude; }
};

}  // namespace detail

/// Writes v[0 .. count) times a scale as values [first, first + count), or adds it to them.
/// @returns true when a result is beyond the type's range (stored as infinity then)
template <int N, bool Add = false>
GLOBALQ_FUNCTION bool store(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                            float const* v) {
  using namespace detail;
  switch (y.type) {
    case dtype::float64:
      return convert_out<N, to_float64, Add>(v, count, scale, static_cast<double*>(y.data) + first) >=
             double_infinity;
    case dtype::float16:
      return convert_out<N, to_half<float16>, Add>(v, count, scale,
                                                   static_cast<std::uint16_t*>(y.data) + first) >= 0x7c00U;
    case dtype::bfloat16:
      return convert_out<N, to_half<bfloat16>, Add>(v, count, scale,
                                                    static_cast<std::uint16_t*>(y.data) + first) >= 0x7f80U;
    default:
      return convert_out<N, to_float32, Add>(v, count, scale, static_cast<float*>(y.data) + first) >=
             float_infinity;
  }
}

/// Makes value i the quiet NaN or zero.
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

/// Fills values [0, count) with the quiet NaN or with zero.
inline void fill(mutable_vector y, std::uint64_t count, bool nan) {
  for (std::uint64_t i = 0; i < count; ++i) fill_value(y, i, nan);
}

}  // namespace GLOBALQ_ABI
