// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief reduce: how the codes of several workers become the code of their sum.

#include "../core/concepts.hpp"
#include "../core/quad.hpp"

namespace GLOBALQ_ABI::reduce {

/// Chosen from levels, norm, wire and schedule, never from what fits (docs/design.md, "Which reduce").
struct automatic {
  static constexpr char const* name() { return "auto"; }
};

/// Codes are added as integers: exact, in any order. Evenly spaced levels and one norm for all workers.
struct sum {
  static constexpr char const* name() { return "sum"; }
  static constexpr bool draws = false;

  template <class Lane>
  GLOBALQ_FUNCTION static Lane add(Lane a, Lane b, std::uint32_t /*word*/) {
    return static_cast<Lane>(a + b);
  }

  /// add() of four codes of one byte.
  GLOBALQ_FUNCTION static std::uint32_t add_quad(std::uint32_t a, std::uint32_t b, std::uint32_t /*word*/) {
    return quad::add(a, b);
  }
};

/// Decode, add in float32, encode again: works for every level scheme and norm, one rounding a hop.
struct requantize {
  static constexpr char const* name() { return "requantize"; }
};

/// Which of the library's ways.
enum class way : std::uint8_t { automatic, sum, exponential, requantize };

/// @brief One of the library's ways, chosen at run time. Whether it fits the other policies is asked when a call is made, or planned.
struct any {
  way which = way::automatic;
  constexpr char const* name() const {
    constexpr char const* names[] = {"auto", "sum", "exponential", "requantize"};
    return names[static_cast<int>(which)];
  }
};

}  // namespace GLOBALQ_ABI::reduce
