// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: a 32-bit CRC that vectorizes without a CRC instruction.
///
/// A CRC treats bytes as a polynomial over GF(2) and returns its remainder modulo a polynomial P of degree 32. It
/// detects every single flipped bit and every burst of up to 32 bits, because P cannot divide them. The order of x
/// modulo P is 2^32 - 1, so two flipped bits at any distance below 512 MiB are detected as well. Other damage passes
/// with a probability of 2^-32. This P divides x^1537 + x + 1. Hence 48 words can be summed in parallel: for each
/// stripe of 1,536 bits, a sum is multiplied by x^1536 = 1 + x^-1: two shifts, an AND and two XORs on whole vectors.

#include "../core/arithmetic.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace GLOBALQ_ABI::wire {

inline constexpr std::size_t checksum_bytes = 4;

namespace detail {

/// The generator without x^32, its highest power in bit 31.
inline constexpr std::uint32_t crc_generator = 0xf9057907U;
/// The same in the bit order of remainders: bit b is the coefficient of x^(31 - b), as in all CRCs that read the lowest
/// bit first.
inline constexpr std::uint32_t crc_low = [] {
  std::uint32_t r = 0;
  for (int b = 0; b < 32; ++b) r |= (crc_generator >> b & 1U) << (31 - b);
  return r;
}();
/// x^-1 = (x^32 + generator - 1) / x.
inline constexpr std::uint32_t crc_inverse = crc_low << 1 | 1U;

/// [k][byte]: the remainder of a byte that k bytes follow.
inline constexpr std::array<std::array<std::uint32_t, 256>, 4> crc_of_byte = [] {
  std::array<std::array<std::uint32_t, 256>, 4> all{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t r = byte;
    for (auto& table : all) {
      for (int b = 0; b < 8; ++b) r = r >> 1 ^ ((0U - (r & 1U)) & crc_low);
      table[byte] = r;
    }
  }
  return all;
}();

/// The remainder after further bytes.
inline std::uint32_t crc_after(std::uint32_t crc, std::span<std::byte const> bytes) {
  for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data(), 4);
    crc ^= word;
    crc = crc_of_byte[3][crc & 255U] ^ crc_of_byte[2][crc >> 8 & 255U] ^ crc_of_byte[1][crc >> 16 & 255U] ^
          crc_of_byte[0][crc >> 24];
  }
  for (std::byte const b : bytes)
    crc = crc >> 8 ^ crc_of_byte[0][(crc ^ std::to_integer<std::uint32_t>(b)) & 255U];
  return crc;
}

inline constexpr std::size_t crc_words = 48, stripe_bytes = 4 * crc_words;

/// Computes one stripe, the sums, that has the same remainder as all stripes.
/// @pre stripes > 0
GLOBALQ_LOOP void sum_stripes(std::byte const* bytes, std::size_t stripes, std::uint32_t start,
                              std::uint32_t* sums) {
  std::uint32_t sum[crc_words], word[crc_words];
  std::memcpy(sum, bytes, stripe_bytes);
  sum[0] ^= start;
  for (std::size_t s = 1; s < stripes; ++s) {
    std::memcpy(word, bytes + s * stripe_bytes, stripe_bytes);
    for (std::size_t k = 0; k < crc_words; ++k) {
      auto const carry = static_cast<std::uint32_t>(static_cast<std::int32_t>(sum[k]) >> 31);
      sum[k] ^= sum[k] << 1 ^ (carry & crc_inverse) ^ word[k];
    }
  }
  std::memcpy(sums, sum, sizeof sum);
}

}  // namespace detail

/// @brief The CRC of some bytes, at any alignment.
/// @param start  the initial remainder: different ones give different results
/// @complexity   O(bytes), at memory bandwidth
inline std::uint32_t checksum(std::span<std::byte const> bytes, std::uint32_t start) {
  std::size_t const stripes = bytes.size() / detail::stripe_bytes;
  if (stripes > 0) {
    std::uint32_t sums[detail::crc_words];
    detail::sum_stripes(bytes.data(), stripes, start, sums);
    start = detail::crc_after(0, std::as_bytes(std::span(sums)));
  }
  return detail::crc_after(start, bytes.subspan(stripes * detail::stripe_bytes));
}

}  // namespace GLOBALQ_ABI::wire
