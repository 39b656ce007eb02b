// expect-error: this rounding does not declare whether it is unbiased
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Bounds and error feedback need to know whether a rounding is unbiased.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

struct down {
  static constexpr char const* name = "down";
  static constexpr bool word_per_coordinate = true;
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  // left out
#else
  static constexpr bool unbiased = false;
#endif
  bool shifts() const { return false; }
  std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  bool up(std::uint32_t, std::uint32_t, std::uint32_t) const { return false; }
  double shift(std::uint32_t) const { return 0; }
};

gq::quantizer<gq::norm::linf, gq::levels::uniform<7>, down, gq::wire::int8> op;
