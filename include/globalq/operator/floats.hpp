// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: floating-point numbers as frames: float32 as they are, or rounded to 16 bits.

#include "../core/dtype.hpp"
#include "../rounding/nearest.hpp"
#include "../rounding/stochastic.hpp"
#include "../wire/frame.hpp"

#include <type_traits>

namespace GLOBALQ_ABI {

/// @brief Sends floating-point numbers and adds them in float32: `floats<bfloat16>` and `floats<float16>` round each sum
/// to 16 bits once before it is sent; `floats<float>` sends it as it is.
///
/// bfloat16 has the range of float32. Vectors for float16 are divided by a power of two that all workers agree on, so
/// that no sum overflows and little of its short range is wasted; those of a group by one each, for which workers exchange a
/// number of the vector's type for each vector. @n
/// Each rounding is unbiased with rounding::stochastic, exactly for bfloat16, for float16 up to 2^-32 of a gap; between
/// roundings sums are those of float32. rounding::nearest (ties to even) has half the largest error, on average half the
/// mean square, and a bias. A mean that rounding raises beyond the range of its type becomes the largest number of it. @n
/// Variance of an encoding: at most 2^-16 v^2 (bfloat16) or 2^-22 v^2 (float16) of a value v. Below 2^(g-27) times the
/// largest value of all workers, g = ceil(log2 n), for at most 709 workers, the gap of float16 is constant: at most 2^(g-37) times it,
/// and at least 2^-1046. In a group the gap of bfloat16 is at least 2^-133, unless the largest values of the group are that small. @n
/// Wire: 16 bits per value, on any schedule but native, which cannot add 16-bit floats without rounding them itself.
/// @code
/// gq::allreduce_mean mean{workers, gq::floats<gq::bfloat16>{}, {.seed = 42}};
/// @endcode
/// @tparam T         float, bfloat16 or float16
/// @tparam Rounding  stochastic or nearest; not for float
/// @determinism the same bits on every worker, instruction set and device
template <class T = float, class Rounding = rounding::stochastic>
struct floats {
  static_assert(
      std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>,
      "globalq: floats: this type cannot be sent; use float, globalq::bfloat16 or globalq::float16");
  static_assert(
      std::is_same_v<Rounding, rounding::stochastic> || std::is_same_v<Rounding, rounding::nearest>,
      "globalq: floats: this rounding is not one of floating-point numbers; use rounding::stochastic or "
      "rounding::nearest");
  static_assert(!std::is_same_v<T, float> || std::is_same_v<Rounding, rounding::stochastic>,
                "globalq: floats: float is sent as it is; leave out the rounding");
};

/// @brief No quantization: float32, as a baseline for comparison.
using uncompressed = floats<float>;

namespace detail {

template <class O>
inline constexpr bool is_floats = false;
template <class T, class R>
inline constexpr bool is_floats<floats<T, R>> = true;

/// A type of numbers in frames.
struct float_format {
  std::uint8_t identifier;  ///< in headers of frames
  double omega;  ///< variance of a rounding, relative to the squared number; 0: numbers are not rounded
  int doubling;  ///< number of roundings that at most double a sum
  int range;     ///< scales place the bound on sums at 2^range; 0: numbers have the range of float32
  int gap;       ///< exponent of the gap between the smallest numbers
};
GLOBALQ_FUNCTION constexpr float_format format_of(dtype sent) {
  switch (sent) {
    case dtype::bfloat16:
      return {wire::float32_identifier + 1, 0x1p-16, 89, 0, -133};
    case dtype::float16:
      return {wire::float32_identifier + 2, 0x1p-22, 710, 15, -24};
    default:
      return {wire::float32_identifier, 0, 0, 0, -149};
  }
}
/// Exponents by which a sum of n numbers can exceed the largest one, also by rounding up at each of at most 8,192 hops.
///
/// On longer chains, and with more than 2,000 workers whose values are near the end of the range of float32 or float64, a
/// sum of float16 can overflow, which is reported.
GLOBALQ_FUNCTION int growth_of_sums(int n, float_format const& f) {
  int const hops = n < 8192 ? n : 8192;
  return log2_ceil(static_cast<std::uint64_t>(n)) + 1 + (f.omega > 0 ? hops / f.doubling + 1 : 0);
}

/// The policies of floats, as data.
struct floats_policies {
  dtype type = dtype::float32;
  bool nearest = false;

  bool rounds() const { return type != dtype::float32; }
};
template <class T, class R>
floats_policies policies_of(floats<T, R> const&) {
  return {dtype_of<T>::value, std::is_same_v<R, rounding::nearest>};
}

}  // namespace detail
}  // namespace GLOBALQ_ABI
