// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief levels: the magnitudes of small floating-point formats, such as FP4 and FP8.

#include "table.hpp"

#include <array>

namespace GLOBALQ_ABI::levels {

/// @brief The magnitudes of a format of E exponent and M mantissa bits, divided by the largest one.
///
/// A code is the bit pattern of its magnitude, and packed codes have the sign above it: wire::packed<1 + E + M> sends
/// the bytes of the format itself. Subnormals are levels; infinities and NaN are not.
/// @tparam E,M       bits
/// @tparam Reserved  top patterns that are not numbers: 0 for the MX formats of 4 and 6 bits, 1 for E4M3, 4 for E5M2
/// @source Open Compute Project: Microscaling Formats (MX) Specification 1.0, section 5.3; OFP8 Specification 1.0
template <int E, int M, int Reserved = 0>
class minifloat : public detail::level_table {
 public:
  static_assert(E >= 1 && M >= 0 && E + M <= 7,
                "globalq: levels::minifloat needs E >= 1, M >= 0 and 1 + E + M <= 8 bits");
  static constexpr std::uint32_t patterns = (1U << (E + M)) - Reserved;  ///< including zero

  /// The number of a bit pattern below `patterns`, exactly.
  static constexpr float number(std::uint32_t pattern) {
    std::uint32_t const mantissa = pattern & ((1U << M) - 1), exponent = pattern >> M;
    float const scale = two_to((exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - M);
    return static_cast<float>(mantissa + (exponent == 0 ? 0U : 1U << M)) * scale;
  }
  static constexpr float largest = number(patterns - 1);

  minifloat() : level_table(fractions(), /*zero_free=*/false, /*reversed=*/false) {}

 private:
  static constexpr int bias = (1 << (E - 1)) - 1;

  static constexpr float two_to(int e) {
    float x = 1;
    for (; e > 0; --e) x *= 2;
    for (; e < 0; ++e) x /= 2;
    return x;
  }
  static std::array<double, patterns - 1> fractions() {
    float_environment const exact;
    std::array<double, patterns - 1> l{};
    for (std::uint32_t k = 1; k < patterns; ++k)
      l[k - 1] = static_cast<double>(number(k)) / static_cast<double>(largest);
    return l;
  }
};

using e2m1 = minifloat<2, 1>;     ///< FP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6
using e2m3 = minifloat<2, 3>;     ///< FP6
using e3m2 = minifloat<3, 2>;     ///< FP6
using e4m3 = minifloat<4, 3, 1>;  ///< FP8, up to 448
using e5m2 = minifloat<5, 2, 4>;  ///< FP8, up to 57,344

}  // namespace GLOBALQ_ABI::levels
