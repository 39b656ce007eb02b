// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: one sign bit for each value, and votes on such bits.

#include "../../kernel/isa/halves_avx512.hpp"

#include <cstdint>
#include <cstring>
#include <span>

namespace GLOBALQ_ABI::baseline::detail {

/// pack_signs() in portable code.
GLOBALQ_LOOP void pack_signs_portable(float const* x, std::uint64_t count, std::uint64_t* words) {
  for (std::uint64_t at = 0; at < count; at += 64) {
    std::uint64_t const here = count - at < 64 ? count - at : 64;
    std::uint64_t word = 0;
    for (std::uint64_t j = 0; j < here; ++j)
      word |= static_cast<std::uint64_t>(bits_of(x[at + j]) > float_sign ? 1U : 0U) << j;
    *words++ = word;
  }
}

/// sums[i] += bit i ? negative : positive, in portable code.
GLOBALQ_LOOP void add_signed_portable(std::uint64_t const* words, std::uint64_t count, float positive,
                                      float negative, float* __restrict sums) {
  for (std::uint64_t i = 0; i < count; ++i)
    sums[i] += (words[i / 64] >> (i % 64) & 1) != 0 ? negative : positive;
}

/// @brief Bit i of the words: x[i] < 0; not set for zeros of both signs. Bits after the last value are zero.
/// @shape words: ceil(count / 64)
inline void pack_signs(float const* x, std::uint64_t count, std::uint64_t* words) {
#if GLOBALQ_AVX512
  __m512i const magnitude = _mm512_set1_epi32(static_cast<int>(float_magnitude));
  std::uint64_t at = 0;
  for (; at + 64 <= count; at += 64) {
    auto const sixteen = [&](std::uint64_t i) {
      __m512i const b = _mm512_loadu_si512(x + at + 16 * i);
      return static_cast<std::uint64_t>(_mm512_movepi32_mask(b) & _mm512_test_epi32_mask(b, magnitude))
             << (16 * i);
    };
    *words++ = sixteen(0) | sixteen(1) | sixteen(2) | sixteen(3);
  }
  pack_signs_portable(x + at, count - at, words);
#else
  pack_signs_portable(x, count, words);
#endif
}

/// sums[i] += bit i ? negative : positive.
inline void add_signed(std::uint64_t const* words, std::uint64_t count, float positive, float negative,
                       float* sums) {
#if GLOBALQ_AVX512
  __m512 const p = _mm512_set1_ps(positive), n = _mm512_set1_ps(negative);
  std::uint64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    auto const mask = static_cast<__mmask16>(words[i / 64] >> (i % 64));
    _mm512_storeu_ps(sums + i, _mm512_add_ps(_mm512_loadu_ps(sums + i), _mm512_mask_blend_ps(mask, p, n)));
  }
  for (; i < count; ++i) sums[i] += (words[i / 64] >> (i % 64) & 1) != 0 ? negative : positive;
#else
  add_signed_portable(words, count, positive, negative, sums);
#endif
}

/// @brief Counts votes for each of 64 bits, in binary: plane p holds bit p of the 64 counts.
class ballot {
 public:
  void add(std::uint64_t votes) {
    for (int p = 0; votes != 0; ++p) {
      if (p == planes_) plane_[planes_++] = 0;
      std::uint64_t const carry = plane_[p] & votes;
      plane_[p] ^= votes;
      votes = carry;
    }
  }

  /// Bits with more than @p half votes, and bits with exactly @p half.
  struct result {
    std::uint64_t more, equal;
  };
  result against(std::uint32_t half) const {
    result r{0, ~std::uint64_t{0}};
    for (int p = 31; p >= 0; --p) {
      std::uint64_t const plane = p < planes_ ? plane_[p] : 0;
      if ((half >> p & 1) != 0) {
        r.equal &= plane;
      } else {
        r.more |= r.equal & plane;
        r.equal &= ~plane;
      }
    }
    return r;
  }

 private:
  std::uint64_t plane_[32];
  int planes_ = 0;
};

}  // namespace GLOBALQ_ABI::baseline::detail
