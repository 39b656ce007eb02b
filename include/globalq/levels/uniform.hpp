// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief levels: k/s for k = 0..s (standard dithering).

#include "../core/concepts.hpp"

namespace GLOBALQ_ABI::levels {
namespace detail {
/// Number of levels of a scheme that was constructed with a fraction, which is an error.
inline constexpr std::uint32_t not_a_count = ~std::uint32_t{0};
}  // namespace detail

/// @brief The levels k/s, k = 0..s; the code of a level is k.
///
/// The library's only scheme whose codes can be added as integers.
/// @tparam S  number of levels above zero, or @c dynamic. Without a number (uniform<>{}) a call uses the largest that
///            fits workers, schedule and wire.
/// @pre       1 <= s <= 2^24: larger float32 values have no fraction to round
/// @source    Alistarh et al. 2017 (QSGD), section 3.1; Xin et al. (Global-QSGD), definition of Global-L_s with its
///            indexing corrected
template <std::uint32_t S = dynamic>
class uniform {
 public:
  static constexpr bool evenly_spaced = true;
  static constexpr std::uint32_t limit = 1U << 24;
  static constexpr char const* name = "uniform";
  static_assert(
      S != detail::not_a_count,
      "globalq: levels::uniform takes the number of levels above zero; pass an integer: levels::uniform{7}");
  static_assert(
      S <= limit,
      "globalq: levels::uniform has at most 2^24 levels, as float32 has no fraction above; use fewer");

  constexpr uniform() = default;
  constexpr explicit uniform(std::uint32_t s) requires(S == dynamic) : s_(s) {}

  /// Levels above zero; 0: the largest number that fits.
  GLOBALQ_FUNCTION constexpr std::uint32_t size() const { return S != dynamic ? S : s_; }
  constexpr std::uint64_t parameters() const { return size(); }
  GLOBALQ_FUNCTION constexpr std::uint32_t max_code() const { return size(); }
  GLOBALQ_FUNCTION float extent() const { return static_cast<float>(size()); }

  /// Exact: t - floor(t) and its product with 2^32 are representable.
  GLOBALQ_FUNCTION neighbors locate(float t) const {
    std::int32_t const k = static_cast<std::int32_t>(t);
    return {k, k + 1, static_cast<std::uint32_t>((t - static_cast<float>(k)) * 0x1p32F)};
  }

  GLOBALQ_FUNCTION float value(std::uint32_t code) const {
    return static_cast<float>(static_cast<std::int32_t>(code));
  }

  /// value() of a signed code, in one step.
  GLOBALQ_FUNCTION static float signed_value(std::int32_t code) { return static_cast<float>(code); }

  /// The same scheme with s levels.
  constexpr uniform resized(std::uint32_t s) const {
    uniform u = *this;
    u.s_ = s;
    return u;
  }

  /// The same scheme with the number of levels as data, so that kernels are compiled once for all numbers.
  constexpr uniform<dynamic> at_run_time() const requires(S != dynamic) {
    return uniform<dynamic>().resized(size());
  }

 private:
  std::uint32_t s_ = S;
};

template <std::integral Count>
uniform(Count) -> uniform<dynamic>;
template <std::floating_point Fraction>
uniform(Fraction) -> uniform<detail::not_a_count>;

}  // namespace GLOBALQ_ABI::levels
