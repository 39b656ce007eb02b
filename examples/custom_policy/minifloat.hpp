// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom level scheme: the magnitudes of a small floating-point format.

//! [minifloat]
#include <globalq/core/concepts.hpp>

/// Zero, and every (1 + m / 2^Mantissa) 2^-e above 2^-Exponents up to 1: code 1 is the smallest, codes rise.
template <int Exponents, int Mantissa>
struct minifloat {
  static constexpr char const* name = "minifloat";
  /// Workers compare it: different parameters give an error instead of a wrong mean.
  std::uint64_t parameters() const { return std::uint64_t{Exponents} << 32 | std::uint64_t{Mantissa}; }

  GLOBALQ_FUNCTION float extent() const { return 1; }
  GLOBALQ_FUNCTION std::uint32_t max_code() const { return (Exponents << Mantissa) + 1; }

  /// The upper bits of a float32 are the code and the lower ones the fraction: exact, therefore unbiased.
  GLOBALQ_FUNCTION globalq::neighbors locate(float t) const {
    std::uint32_t const bits = globalq::bits_of(t);
    auto const below = static_cast<std::int32_t>(bits >> dropped) - lowest;
    std::uint32_t const fraction = bits << (32 - dropped);
    // between zero and the smallest level: t divided by it; limited below 1, where it is not used
    float const share = t * globalq::power_of_two_float(Exponents);
    auto const small = static_cast<std::uint32_t>((share < 1 ? share : 0) * 0x1p32F);
    return below < 0 ? globalq::neighbors{0, 1, small} : globalq::neighbors{below + 1, below + 2, fraction};
  }

  GLOBALQ_FUNCTION float value(std::uint32_t code) const {
    return code == 0 ? 0 : globalq::float_of((code - 1 + static_cast<std::uint32_t>(lowest)) << dropped);
  }

 private:
  static constexpr int dropped = 23 - Mantissa;                          // bits of a float32's mantissa
  static constexpr std::int32_t lowest = (127 - Exponents) << Mantissa;  // the upper bits of 2^-Exponents
};

static_assert(globalq::LevelScheme<minifloat<3, 1>>);
//! [minifloat]
