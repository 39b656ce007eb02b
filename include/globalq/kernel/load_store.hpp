// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: reading and writing tiles of a vector.
///
/// The value type is known only at run time. A tile is converted to float32 in L1 (or in registers), and all later code
/// is written for float32 only. The number of compiled kernels therefore does not depend on the number of types.

#include "../core/dtype.hpp"
#if GLOBALQ_AVX512
#include "isa/halves_avx512.hpp"
#elif GLOBALQ_AVX2 && defined(__F16C__)
#include "isa/halves_f16c.hpp"
#endif

namespace GLOBALQ_ABI::kernel {

namespace detail {

/// Converts values to float32 and multiplies them by a factor.
template <int N, class Convert, class Stored, class Factor>
GLOBALQ_LOOP void convert_in(Stored const* in, int count, Factor factor, float* out) {
  if constexpr (requires { requires Convert::converts; }) return Convert::convert(in, count, factor, out);
  globalq::detail::with_count<N>(count, [=](auto n) {
    Stored const* __restrict source = in;
    float* __restrict target = out;
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) target[i] = Convert::scaled(source[i], factor);
  });
}

/// The conversion of one value by convert_in().
struct from_float64 {
  GLOBALQ_FUNCTION static float scaled(double v, double factor) { return static_cast<float>(v * factor); }
};
template <class Half>
struct from_half {
  GLOBALQ_FUNCTION static float widened(std::uint16_t v) { return Half::widen(v); }
  GLOBALQ_FUNCTION static float scaled(std::uint16_t v, float factor) {
    return multiply(Half::widen(v), factor);
  }
#if GLOBALQ_AVX512
  /// The whole loop, if the instruction set has conversion instructions.
  static constexpr bool converts = true;
  static void convert(std::uint16_t const* in, int count, float factor, float* out) {
    widen_halves<Half>(in, count, factor, out);
  }
  static void add(float const* own, std::uint16_t const* in, int count, float* sum) {
    add_halves<Half>(own, in, count, sum);
  }
  static std::uint32_t scale(std::uint16_t const* in, int count, store_scale const& to, float* out) {
    return scale_halves<Half>(in, count, to, out);
  }
#elif GLOBALQ_AVX2 && defined(__F16C__)
  static constexpr bool converts = std::is_same_v<Half, float16>;
  static void convert(std::uint16_t const* in, int count, float factor, float* out) {
    widen_float16(in, count, factor, out);
  }
  static void add(float const* own, std::uint16_t const* in, int count, float* sum) {
    add_float16(own, in, count, sum);
  }
  static std::uint32_t scale(std::uint16_t const* in, int count, store_scale const& to, float* out) {
    return scale_float16(in, count, to, out);
  }
#endif
};
struct from_float32 {
  GLOBALQ_FUNCTION static float widened(float v) { return v; }
  GLOBALQ_FUNCTION static float scaled(float v, float factor) { return multiply(v, factor); }
};

}  // namespace detail

/// Reads values [first, first + count) times 2^exponent as float32.
///
/// The product is exact unless it leaves float32's range; float64 is rounded to float32 after the product.
/// @param exponent  from -126 to 127; for float64 from -1022 to 1023
/// @param buffer    N floats, filled unless the values can be read in place
/// @returns         the count floats: @p buffer, or the vector itself (float32 with exponent 0)
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

namespace detail {

/// sum = own + values as float32.
template <int N, class Convert, class Stored>
GLOBALQ_LOOP void add_converted(float const* own, Stored const* in, int count, float* sum) {
  if constexpr (requires { requires Convert::converts; }) return Convert::add(own, in, count, sum);
  globalq::detail::with_count<N>(count, [=](auto n) {
    int const end = n;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) sum[i] = own[i] + Convert::widened(in[i]);
  });
}

}  // namespace detail

/// sum = own + values [first, first + count) of a vector of 16 or 32 bits, in float32.
/// @param own  may be @p sum
template <int N>
GLOBALQ_FUNCTION void add_stored(float const* own, const_vector x, std::uint64_t first, int count,
                                 float* sum) {
  auto const* const halves = static_cast<std::uint16_t const*>(x.data) + first;
  if (x.type == dtype::float16)
    detail::add_converted<N, detail::from_half<float16>>(own, halves, count, sum);
  else if (x.type == dtype::bfloat16)
    detail::add_converted<N, detail::from_half<bfloat16>>(own, halves, count, sum);
  else
    detail::add_converted<N, detail::from_float32>(own, static_cast<float const*>(x.data) + first, count,
                                                   sum);
}

namespace detail {

/// Writes scaled values, or adds them to the output. Returns the bit pattern of the largest resulting magnitude.
template <int N, class Type, bool Add, class Stored>
GLOBALQ_LOOP auto convert_out(float const* in, int count, store_scale const& to, Stored* out) {
  using word = typename Type::word;
  if constexpr (requires { requires Type::converts; }) return Type::template convert<Add>(in, count, to, out);
  store_scale const scale = to;
  word largest = 0;
  globalq::detail::with_count<N>(count, [=, &largest](auto n) {
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

/// The conversion of one value by convert_out().
struct to_float64 {
  using word = std::uint64_t;
  template <bool Add>
  GLOBALQ_FUNCTION static double stored(float v, store_scale const& scale, double there) {
    double const p = static_cast<double>(v) * scale.wide;
    std::uint64_t const sign = bits_of(static_cast<double>(v)) & ~double_magnitude;
    double const value = multiply(double_of((bits_of(p) & double_magnitude) | sign), scale.wide_post);
    // the value already has that sign: the operation prevents a host's compiler from fusing the product into the sum
    return Add ? there + double_of(bits_of(value) | sign) : value;
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
#if GLOBALQ_AVX512 || (GLOBALQ_AVX2 && defined(__F16C__))
  static constexpr bool converts = true;
  template <bool Add>
  static std::uint32_t convert(float const* in, int count, store_scale const& scale, std::uint16_t* out) {
    return round_to_halves<Half, Add>(in, count, scale, out);
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

namespace detail {

/// Writes 0 + values times a scale; 0 + -0 is 0. Returns the bit pattern of the largest resulting magnitude.
template <int N, class Convert>
GLOBALQ_LOOP std::uint32_t scale_converted(std::uint16_t const* in, int count, store_scale const& to,
                                           float* out) {
  if constexpr (requires { requires Convert::converts; }) return Convert::scale(in, count, to, out);
  store_scale const scale = to;
  std::uint32_t largest = 0;
  globalq::detail::with_count<N>(count, [=, &largest](auto n) {
    std::uint16_t const* __restrict source = in;
    float* __restrict target = out;
    int const end = n;
    std::uint32_t top = 0;
    GLOBALQ_INDEPENDENT
    for (int i = 0; i < end; ++i) {
      std::uint32_t const b = bits_of(Convert::widened(source[i]));
      float const r = scale(float_of((b & float_magnitude) == 0 ? 0U : b));
      std::uint32_t const m = bits_of(r) & float_magnitude;
      top = top < m ? m : top;
      target[i] = r;
    }
    largest = top;
  });
  return largest;
}

}  // namespace detail

/// y = (0 + values [first, first + count) of a vector of 16 bits) times a scale: add_stored() and store() in one.
/// @returns true if a result is beyond float32's range
template <int N>
GLOBALQ_FUNCTION bool scale_stored(const_vector x, std::uint64_t first, int count, store_scale const& scale,
                                   float* y) {
  auto const* const halves = static_cast<std::uint16_t const*>(x.data) + first;
  std::uint32_t const top =
      x.type == dtype::float16
          ? detail::scale_converted<N, detail::from_half<float16>>(halves, count, scale, y)
          : detail::scale_converted<N, detail::from_half<bfloat16>>(halves, count, scale, y);
  return top >= float_infinity;
}

/// Writes v[0 .. count) times a scale to values [first, first + count), or adds it to them.
/// @returns true if a result is beyond the type's range; it is stored as infinity
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

}  // namespace GLOBALQ_ABI::kernel
