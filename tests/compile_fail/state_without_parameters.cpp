// expect-error: a policy with members or template arguments must declare a number for them
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Workers whose roundings have other members must find out.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

struct tilted {
  static constexpr char const* name = "tilted";
  static constexpr bool word_per_coordinate = true, unbiased = false;
  std::uint32_t by = 0;
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  // left out
#else
  std::uint64_t parameters() const { return by; }
#endif
  bool shifts() const { return false; }
  std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const { return word + by < threshold; }
  double shift(std::uint32_t) const { return 0; }
};

gq::quantizer<gq::norm::linf, gq::levels::uniform<7>, tilted, gq::wire::int8> op;
