// expect-error: levels, rounding and wire must each declare a name
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Workers with other levels must find out.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

struct half_and_one {
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  // left out
#else
  static constexpr char const* name = "half-and-one";
#endif
  float extent() const { return 1; }
  std::uint32_t max_code() const { return 2; }
  gq::neighbours locate(float t) const {
    std::int32_t const below = t < 0.5F ? 0 : 1;
    return {below, below + 1, static_cast<std::uint32_t>((2 * t - static_cast<float>(below)) * 0x1p31F)};
  }
  float value(std::uint32_t code) const { return 0.5F * static_cast<float>(code); }
};

gq::quantizer<gq::norm::linf, half_and_one, gq::rounding::stochastic, gq::wire::int8> op;
