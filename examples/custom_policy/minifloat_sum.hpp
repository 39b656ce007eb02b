// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom reduce operator: adds two small floating-point numbers and rounds the sum to one, unbiased.

#include "minifloat.hpp"

//! [minifloat-sum]
/// Adds codes of minifloat<Exponents, Mantissa>, which continue above 1: each addition may double a value.
template <int Exponents, int Mantissa>
struct minifloat_sum {
  using levels = minifloat<Exponents, Mantissa>;
  static constexpr char const* name = "minifloat-sum";
  static constexpr bool draws = true;     // add() uses a random word
  static constexpr bool unbiased = true;  // E[add(a, b)] is a + b
  template <class Levels>
  static constexpr bool adds = std::is_same_v<Levels, levels>;

  static std::uint64_t parameters() { return levels().parameters(); }

  static std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t /*terms*/, std::uint32_t height) {
    return max_code + (std::uint64_t{height} << Mantissa);
  }

  GLOBALQ_FUNCTION static std::int32_t add(std::int32_t a, std::int32_t b, std::uint32_t word) {
    float const sum = value(a) + value(b);  // exact: few digits, and exponents that are close
    globalq::neighbors const c = levels().locate(sum < 0 ? -sum : sum);
    std::int32_t const code = word < c.threshold ? c.upper : c.lower;
    return sum < 0 ? -code : code;
  }

 private:
  GLOBALQ_FUNCTION static float value(std::int32_t code) {
    float const v = levels().value(static_cast<std::uint32_t>(code < 0 ? -code : code));
    return code < 0 ? -v : v;
  }
};

static_assert(globalq::AddsCodes<minifloat_sum<3, 1>, minifloat<3, 1>, std::int8_t>);
//! [minifloat-sum]
