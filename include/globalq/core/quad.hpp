// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: operations on four bytes in a 32-bit register, by which a GPU thread processes one-byte codes.
///
/// No byte carries into the next. GPUs have few instructions for bytes, but permute bytes and compute any logical
/// function of three words in one instruction. The same code gives the same bits on a host.

#include "arithmetic.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::quad {

inline constexpr std::uint32_t ones = 0x01010101U;  ///< 1 in each byte
inline constexpr std::uint32_t tops = 0x80808080U;  ///< the top bit of each byte
inline constexpr std::uint32_t lows = 0x7f7f7f7fU;  ///< all other bits

/// 0xff where the top bit of a byte is set, else 0.
GLOBALQ_FUNCTION std::uint32_t signs(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  std::uint32_t r;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(r) : "r"(x));
  return r;
#else
  return ((x >> 7) & ones) * 0xffU;
#endif
}

/// Bytes chosen from eight, those of @p low and then those of @p high, by the lower three bits of each nibble.
GLOBALQ_FUNCTION std::uint32_t permute(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  std::uint64_t const from = (static_cast<std::uint64_t>(high) << 32) | low;
  std::uint32_t r = 0;
  for (int k = 0; k < 4; ++k)
    r |= (static_cast<std::uint32_t>(from >> (8 * ((selector >> (4 * k)) & 7U))) & 0xffU) << (8 * k);
  return r;
#endif
}

/// Sums modulo 256.
GLOBALQ_FUNCTION std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  return ((a & lows) + (b & lows)) ^ ((a ^ b) & tops);
}

/// |c|, up to 128.
/// @param sign  signs(c)
GLOBALQ_FUNCTION std::uint32_t magnitude(std::uint32_t c, std::uint32_t sign) {
  return (c ^ sign) + (sign & ones);
}

/// Applies signs to magnitudes up to 127; zero stays zero.
GLOBALQ_FUNCTION std::uint32_t with_sign(std::uint32_t m, std::uint32_t sign) {
  return (((m ^ sign) & lows) + (sign & ones)) ^ (sign & tops);
}

/// Sets the top bit of each byte whose magnitude as a signed number is above a limit; the other bits are undefined.
/// @param room  127 - limit in each byte
GLOBALQ_FUNCTION std::uint32_t beyond(std::uint32_t c, std::uint32_t room) {
  return magnitude(c, signs(c)) + room;
}

/// Sets the top bit of each byte that is zero; the other bits are undefined.
GLOBALQ_FUNCTION std::uint32_t zeros(std::uint32_t c) { return ~(((c & lows) + lows) | c); }

}  // namespace GLOBALQ_ABI::quad
