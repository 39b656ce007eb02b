// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: up with a probability equal to the fraction, with random words for each coordinate and worker.

#include "../core/concepts.hpp"

namespace GLOBALQ_ABI::rounding {

/// @brief Unbiased: E[decode(encode(x))] = x for every coordinate, however small (bias at most 2^-32 of a gap).
///
/// The variance of a coordinate between levels a <= y <= c is (c - y)(y - a).
/// @source  Alistarh et al. 2017 (QSGD), section 3.1
struct stochastic {
  static constexpr bool word_per_coordinate = true;
  static constexpr bool unbiased = true;
  using compares_words_alone = stochastic;
  static constexpr char const* name = "stochastic";

  GLOBALQ_FUNCTION constexpr bool shifts() const { return false; }
  GLOBALQ_FUNCTION constexpr std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  GLOBALQ_FUNCTION constexpr bool up(std::uint32_t threshold, std::uint32_t word,
                                     std::uint32_t /*sign*/) const {
    return word < threshold;
  }
  /// up() is compared(word, sign) < threshold.
  GLOBALQ_FUNCTION constexpr std::uint32_t compared(std::uint32_t word, std::uint32_t /*sign*/) const {
    return word;
  }
  GLOBALQ_FUNCTION constexpr double shift(std::uint32_t /*word*/) const { return 0; }
};

}  // namespace GLOBALQ_ABI::rounding
