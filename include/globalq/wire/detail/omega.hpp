// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: Elias's omega code of the positive integers.
///
/// A codeword is built from its end: a 0; before it k in binary; before that the number of bits of k, minus one, in
/// binary; and so on until that number is 1. So 1 is "0", 2 "100", 4 "101000", 8 "1110000", 16 "10100100000".
/// @source Elias 1975; Alistarh et al. 2017, section 3.1

#include "bits.hpp"

namespace GLOBALQ_ABI::wire::detail {

/// |omega(k)|
/// @pre k >= 1
constexpr int omega_length(std::uint32_t k) {
  int length = 1;
  while (k > 1) {
    int const bits = bit_width(k);
    length += bits;
    k = static_cast<std::uint32_t>(bits - 1);
  }
  return length;
}

/// omega(k), at most 24 bits.
/// @pre 1 <= k < 65536
constexpr codeword omega(std::uint32_t k) {
  std::uint32_t word = 0;
  int length = 1;
  while (k > 1) {
    word |= k << length;
    int const bits = bit_width(k);
    length += bits;
    k = static_cast<std::uint32_t>(bits - 1);
  }
  return make_codeword(word, length);
}

struct omega_value {
  std::uint32_t value;
  int length;  ///< 0: the value has more than 16 bits, which this library does not use
};

/// The number whose codeword begins at the top of @p word.
constexpr omega_value read_omega(std::uint64_t word) {
  std::uint32_t k = 1;
  int length = 1;
  while ((word >> 63) != 0) {
    if (k >= 16) return {0, 0};
    int const bits = static_cast<int>(k) + 1;
    k = static_cast<std::uint32_t>(word >> (64 - bits));
    word <<= bits;
    length += bits;
  }
  return {k, length};
}

}  // namespace GLOBALQ_ABI::wire::detail
