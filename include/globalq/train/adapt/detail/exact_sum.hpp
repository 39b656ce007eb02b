// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: adds doubles without rounding, so that a comparison with the budget is exact.

#include "../../../core/arithmetic.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>

namespace GLOBALQ_ABI::adapt::detail {

/// @brief The exact sum of up to 2^64 finite, non-negative doubles: an integer in units of 2^-1074.
/// @determinism integer arithmetic: the same with -ffast-math, flush-to-zero and in any order
class exact_sum {
 public:
  exact_sum() = default;
  explicit exact_sum(double x) { add(x); }

  /// @pre x is finite and not negative
  void add(double x) {
    std::uint64_t const bits = bits_of(x) & double_magnitude, field = bits >> 52;
    std::uint64_t const mantissa =
        (bits & ((std::uint64_t{1} << 52) - 1)) | (field != 0 ? std::uint64_t{1} << 52 : 0);
    unsigned const place = field == 0 ? 0 : static_cast<unsigned>(field) - 1;
    std::size_t w = place / 64;
    unsigned const shift = place % 64;
    std::uint64_t const high = shift == 0 ? 0 : mantissa >> (64 - shift);
    bool carry = add_to(w, mantissa << shift);
    for (std::uint64_t next = high; next != 0 || carry; next = 0) {
      ++w;
      bool const from_carry = carry && add_to(w, 1);
      carry = add_to(w, next) || from_carry;
    }
  }

  /// The smallest double that is not below the sum; infinity if the sum exceeds the largest double.
  double rounded_up() const {
    std::size_t top = words;
    while (top > 0 && word_[top - 1] == 0) --top;
    if (top == 0) return 0;
    int const last =
        static_cast<int>(top) * 64 - 1 - std::countl_zero(word_[top - 1]);  // place of the highest bit
    if (last <= 52) return std::ldexp(static_cast<double>(word_[0]), -1074);
    int const first = last - 52;
    std::size_t const w = static_cast<std::size_t>(first) / 64;
    unsigned const shift = static_cast<unsigned>(first) % 64;
    std::uint64_t mantissa = word_[w] >> shift;
    if (shift != 0 && w + 1 < words) mantissa |= word_[w + 1] << (64 - shift);
    mantissa &= (std::uint64_t{1} << 53) - 1;
    bool more = shift != 0 && (word_[w] << (64 - shift)) != 0;
    for (std::size_t i = 0; i < w; ++i) more = more || word_[i] != 0;
    return std::ldexp(static_cast<double>(mantissa + (more ? 1 : 0)), first - 1074);
  }

  friend std::strong_ordering operator<=>(exact_sum const& a, exact_sum const& b) {
    for (std::size_t w = words; w-- > 0;)
      if (a.word_[w] != b.word_[w]) return a.word_[w] <=> b.word_[w];
    return std::strong_ordering::equal;
  }
  friend bool operator==(exact_sum const&, exact_sum const&) = default;

 private:
  static constexpr std::size_t words = 34;  // 2,098 bits of a double's range, and 78 for carries

  bool add_to(std::size_t w, std::uint64_t x) {
    word_[w] += x;
    return word_[w] < x;
  }

  std::array<std::uint64_t, words> word_{};
};

}  // namespace GLOBALQ_ABI::adapt::detail
