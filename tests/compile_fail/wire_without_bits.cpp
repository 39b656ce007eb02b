// expect-error: this wire format does not declare how many bits a code takes
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Plans and chunks are computed from the bits of a code.

#include <globalq/operator/quantizer.hpp>

#include <cstring>

namespace gq = globalq;

struct bytes_of_codes {
  static constexpr char const* name = "bytes";
  using lane = std::int8_t;
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  // left out
#else
  int bits() const { return 8; }
#endif
  std::uint32_t largest_code(bool) const { return 127; }
  std::uint64_t bytes(std::uint64_t n) const { return n; }
  std::uint8_t identifier() const { return 40; }
  void pack(std::int8_t const* lanes, int n, std::byte* out, bool) const {
    std::memcpy(out, lanes, static_cast<std::size_t>(n));
  }
  bool unpack(std::byte const* in, int n, std::int8_t* lanes, bool) const {
    std::memcpy(lanes, in, static_cast<std::size_t>(n));
    return false;
  }
};

gq::quantizer<gq::norm::linf, gq::levels::uniform<7>, gq::rounding::stochastic, bytes_of_codes> op;
