// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief levels: 0 and b^-(k-1) for k = 1..s (exponential, or natural, dithering).

#include "table.hpp"

#include <string>

namespace GLOBALQ_ABI::levels {

/// Selects base 2, whose levels are computed from a float's exponent field.
struct binary {};

/// @brief The levels 0 and 2^-(k-1), k = 1..s; code 0 is zero, code k is 2^-(k-1).
///
/// Codes fall as magnitudes rise. reduce::exponential adds codes; for it they are shifted up by the headroom h of the
/// schedule to k + h, because each addition may double a value.
/// @tparam S  number of levels above zero, or @c dynamic; if omitted, the largest number that fits
/// @pre       1 <= s <= 127; h <= 127, or 95 when s > 95
/// @source    Xin et al. (Global-QSGD), definition of Global-E_s with its indexing corrected; Horvath et al. 2019
template <std::uint32_t S = dynamic, class Base = binary>
class exponential {
  static_assert(std::is_same_v<Base, binary>,
                "globalq: levels::exponential takes the number of levels above zero, and then a base other "
                "than 2; pass an integer first: levels::exponential{7} or levels::exponential{7, 1.5}");

 public:
  static constexpr bool evenly_spaced = false;
  static constexpr bool base_two = true;
  static constexpr char const* name = "exponential";
  static constexpr std::uint32_t limit = 127;
  static_assert(S <= limit,
                "globalq: levels::exponential has at most 127 levels (2^-126 is the smallest normal "
                "float32); use fewer");

  constexpr exponential() = default;
  constexpr explicit exponential(std::uint32_t s) requires(S == dynamic) : s_(s) {}

  /// Levels above zero; 0: the largest number that fits.
  GLOBALQ_FUNCTION constexpr std::uint32_t size() const { return S != dynamic ? S : s_; }
  constexpr std::uint64_t parameters() const { return size(); }
  GLOBALQ_FUNCTION constexpr std::uint32_t headroom() const { return headroom_; }
  GLOBALQ_FUNCTION constexpr std::uint32_t max_code() const { return size() + headroom_; }
  GLOBALQ_FUNCTION float extent() const { return power_of_two_float(stretch()); }

  /// Exact: the mantissa of t is the fraction between two powers of two; t below the smallest level is scaled by one.
  GLOBALQ_FUNCTION neighbors locate(float t) const {
    std::uint32_t const b = bits_of(t);
    std::int32_t const k =
        128 + stretch() + static_cast<std::int32_t>(headroom_) - static_cast<std::int32_t>(b >> 23);
    std::int32_t const last = static_cast<std::int32_t>(max_code());
    bool const below = k > last;
    // t / (smallest level), exact; clamped below 1 as an integer (unused there), as a float select would not vectorize
    std::uint32_t const part =
        bits_of(multiply(t, power_of_two_float(static_cast<int>(size()) - 1 - stretch())));
    std::uint32_t const small =
        static_cast<std::uint32_t>(float_of(part < 0x3f7fffffU ? part : 0x3f7fffffU) * 0x1p32F);
    return {below ? 0 : k, below ? last : k - 1, below ? small : b << 9};
  }

  GLOBALQ_FUNCTION float value(std::uint32_t code) const {
    std::uint32_t const field = 128 + static_cast<std::uint32_t>(stretch()) + headroom_ - code;
    return code == 0 ? 0.0F : float_of(field << 23);
  }

  constexpr exponential resized(std::uint32_t s) const {
    exponential e = *this;
    e.s_ = s;
    return e;
  }

  /// The same scheme with codes shifted up by h.
  constexpr exponential with_headroom(std::uint32_t h) const {
    exponential e = *this;
    e.headroom_ = h;
    return e;
  }

  /// The same scheme with the number of levels as data, so that kernels are compiled once for all numbers.
  constexpr exponential<dynamic, Base> at_run_time() const requires(S != dynamic) {
    return exponential<dynamic, Base>().resized(size()).with_headroom(headroom_);
  }

  /// The largest headroom that float32 can decode.
  constexpr std::uint32_t headroom_limit() const { return 127U - static_cast<std::uint32_t>(stretch()); }

 private:
  /// More than 95 levels are scaled up by 2^stretch, so that no product is subnormal.
  GLOBALQ_FUNCTION constexpr int stretch() const { return size() > 95 ? static_cast<int>(size()) - 95 : 0; }

  std::uint32_t s_ = S;
  std::uint32_t headroom_ = 0;
};

/// @brief The levels 0 and b^-(k-1), k = 1..s, for any base b > 1.
///
/// Stored as a table. Codes cannot be added; sums are decoded, added and encoded again.
/// @throws configuration_error unless 1 < b, 1 <= s <= 127 and b^(s-1) <= 2^94
template <>
class exponential<dynamic, double> : public detail::level_table {
 public:
  exponential(std::uint32_t s, double base) : level_table(powers(s, base)) {}

 private:
  static level_table powers(std::uint32_t s, double base) {
    float_environment const exact;
    std::string const start = "globalq: levels::exponential: base " + std::to_string(base);
    if (!(base > 1.0))
      throw configuration_error(start + " is not above 1; use 2 (fast) or another base above 1");
    if (s < 1 || s > limit)
      throw configuration_error("globalq: levels::exponential: " + std::to_string(s) + " levels; use 1 to " +
                                std::to_string(limit));
    double values[limit] = {};
    double v = 1.0;
    for (std::uint32_t k = 0; k < s; ++k) {
      values[s - 1 - k] = v;
      v = rounded(v / base);
    }
    if (!(values[0] >= 0x1p-94))
      throw configuration_error(start + " with " + std::to_string(s) +
                                " levels has levels below 2^-94; use fewer levels or a smaller base");
    if (s > 1 && !(static_cast<float>(values[s - 2]) < 1.0F))
      throw configuration_error(start +
                                " is so close to 1 that its levels are equal as float32; use a larger base");
    return level_table({values, s}, /*zero_free=*/false, /*reversed=*/true);
  }
};

template <std::integral Count>
exponential(Count) -> exponential<dynamic, binary>;
template <std::integral Count>
exponential(Count, double) -> exponential<dynamic, double>;
template <std::floating_point Fraction>
exponential(Fraction) -> exponential<dynamic, Fraction*>;
template <std::floating_point Fraction>
exponential(Fraction, double) -> exponential<dynamic, Fraction*>;

}  // namespace GLOBALQ_ABI::levels
