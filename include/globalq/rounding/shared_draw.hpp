// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: common base of random shift and nearest: rounding with one random word per bucket.

#include "../core/concepts.hpp"

namespace GLOBALQ_ABI::rounding::detail {

/// Random shift, its variants and rounding to nearest as data, so that they share one kernel.
struct shared_draw {
  static constexpr bool word_per_coordinate = false;

  bool shift_back = false;  ///< negative values use the complement of the word, and decoding adds the shift
  bool constant = false;    ///< always the word 2^31 - 1: up iff the fraction is at least one half
  bool correlated = false;  ///< the words of workers for a bucket are in different parts of their range
  std::uint32_t encoders = 1;  ///< if so, how many workers there are

  constexpr char const* name() const {
    if (correlated) return shift_back ? "correlated-shift" : "correlated-shift-unshifted";
    return constant ? "nearest" : (shift_back ? "random-shift" : "random-shift-unshifted");
  }
  constexpr std::uint64_t parameters() const {
    return (shift_back ? 1U : 0U) | (constant ? 2U : 0U) | (correlated ? 4U : 0U);
  }
  constexpr shared_draw for_worker(std::uint32_t /*rank*/, std::uint32_t workers) const {
    shared_draw told = *this;
    told.encoders = workers;
    return told;
  }
  /// Workers whose words for a bucket divide the range.
  GLOBALQ_FUNCTION constexpr std::uint32_t sharers() const { return correlated ? encoders : 1; }
  GLOBALQ_FUNCTION constexpr bool shifts() const { return shift_back; }
  GLOBALQ_FUNCTION constexpr std::uint32_t word(std::uint32_t drawn) const {
    return constant ? 0x7fffffffU : drawn;
  }
  GLOBALQ_FUNCTION constexpr bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t sign) const {
    return compared(word, sign) < threshold;
  }
  GLOBALQ_FUNCTION constexpr std::uint32_t compared(std::uint32_t word, std::uint32_t sign) const {
    return word ^ (shift_back || correlated ? sign : 0U);
  }
  /// u = (word + 1) / 2^32 - 1/2 in (-1/2, 1/2], in units of the gap.
  GLOBALQ_FUNCTION constexpr double shift(std::uint32_t word) const {
    return shift_back ? (static_cast<double>(word) + 1.0) * 0x1p-32 - 0.5 : 0.0;
  }
};

}  // namespace GLOBALQ_ABI::rounding::detail
