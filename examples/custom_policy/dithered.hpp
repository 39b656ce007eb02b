// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom rounding: stochastic; with the same word, a larger value never becomes a smaller level.

//! [dithered]
#include <globalq/core/concepts.hpp>

/// Negative values use the complement of the word, so that all values are rounded toward the same side.
struct dithered {
  static constexpr char const* name = "dithered";
  static constexpr bool unbiased = true;             // a value's expected level is the value
  static constexpr bool word_per_coordinate = true;  // false: one word per bucket

  GLOBALQ_FUNCTION std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  GLOBALQ_FUNCTION bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t sign) const {
    return (word ^ sign) < threshold;  // sign: all ones for a negative value
  }
  GLOBALQ_FUNCTION bool shifts() const { return false; }  // decoding adds nothing
  GLOBALQ_FUNCTION double shift(std::uint32_t /*word*/) const { return 0; }
};

static_assert(globalq::RoundingScheme<dithered>);
//! [dithered]
