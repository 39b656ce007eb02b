// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief reduce: methods that compute the codes of a sum from the codes of several workers.

#include "../core/concepts.hpp"
#include "../core/quad.hpp"

namespace GLOBALQ_ABI::reduce {

/// The method follows from levels, norm, wire and schedule, not from what fits (docs/design.md, "Which reduce").
struct automatic {
  static constexpr char const* name() { return "auto"; }
};

/// Adds codes as integers: exact, in any order. Needs evenly spaced levels and one norm for all workers.
struct sum {
  static constexpr char const* name() { return "sum"; }
  static constexpr bool draws = false;

  template <class Int>
  GLOBALQ_FUNCTION static Int add(Int a, Int b, std::uint32_t /*word*/) {
    return static_cast<Int>(a + b);
  }

  /// add() of four one-byte codes.
  GLOBALQ_FUNCTION static std::uint32_t add_quad(std::uint32_t a, std::uint32_t b, std::uint32_t /*word*/) {
    return quad::add(a, b);
  }
};

/// Decodes, adds in float32 and encodes again. Works for every level scheme and norm, with one rounding per hop.
struct requantize {
  static constexpr char const* name() { return "requantize"; }
};

/// The library's reduce methods.
enum class way : std::uint8_t { automatic, sum, exponential, requantize };

/// @brief One of the library's methods, chosen at run time. Whether it fits the other policies is checked when a call
///        is set up or planned.
struct any {
  way which = way::automatic;
  constexpr char const* name() const {
    constexpr char const* names[] = {"auto", "sum", "exponential", "requantize"};
    return names[static_cast<int>(which)];
  }
};

}  // namespace GLOBALQ_ABI::reduce
