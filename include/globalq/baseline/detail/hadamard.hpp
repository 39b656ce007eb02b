// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the randomized Hadamard transform of a block: signs, then sums and differences.

#include "../../kernel/isa/halves_avx512.hpp"
#include "../../random/stream.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::baseline::detail {

/// One stage of the transform of @p count values: sums and differences of values @p reach apart.
GLOBALQ_LOOP void butterflies(float* x, std::uint64_t count, std::uint64_t reach) {
  for (std::uint64_t at = 0; at < count; at += 2 * reach) {
    float* __restrict low = x + at;
    float* __restrict high = x + at + reach;
    for (std::uint64_t i = 0; i < reach; ++i) {
      float const a = low[i], b = high[i];
      low[i] = a + b;
      high[i] = a - b;
    }
  }
}

/// hadamard() in portable code.
inline void hadamard_portable(float* x, std::uint64_t count) {
  for (std::uint64_t reach = 1; reach < count; reach *= 2) butterflies(x, count, reach);
}

#if GLOBALQ_AVX512
/// The stages of reach 1 to 8, in registers: a value's partner, plus or minus the value. The same sums, so the same
/// bits.
/// @param count  a multiple of 16
GLOBALQ_LOOP void butterflies_of_16(float* x, std::uint64_t count) {
  auto const partner = [](int reach) {
    return _mm512_xor_si512(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                            _mm512_set1_epi32(reach));
  };
  __m512i const p1 = partner(1), p2 = partner(2), p4 = partner(4), p8 = partner(8);
  __m512 const sign = _mm512_set1_ps(-0.0F);
  auto const stage = [&](__m512 v, __m512i from, __mmask16 upper) {
    return _mm512_add_ps(_mm512_maskz_permutexvar_ps(kernel::detail::all_lanes, from, v),
                         _mm512_mask_xor_ps(v, upper, v, sign));
  };
  for (std::uint64_t i = 0; i < count; i += 16) {
    __m512 v = _mm512_loadu_ps(x + i);
    v = stage(v, p1, 0xaaaa);
    v = stage(v, p2, 0xcccc);
    v = stage(v, p4, 0xf0f0);
    v = stage(v, p8, 0xff00);
    _mm512_storeu_ps(x + i, v);
  }
}
#endif

/// @brief x = H x, without a factor: H H = count.
/// @param count  a power of two
/// @determinism  sums of two in a fixed order, without products: the same bits everywhere
inline void hadamard(float* x, std::uint64_t count) {
#if GLOBALQ_AVX512
  if (count < 16) return hadamard_portable(x, count);
  butterflies_of_16(x, count);
  for (std::uint64_t reach = 16; reach < count; reach *= 2) butterflies(x, count, reach);
#else
  hadamard_portable(x, count);
#endif
}

/// Changes the signs of 32 values by the bits of a word.
GLOBALQ_LOOP void turn_signs(std::uint32_t word, float* x) {
  for (int j = 0; j < 32; ++j) x[j] = float_of(bits_of(x[j]) ^ word >> j << 31);
}

/// Changes the signs of values by random bits: value i of the vector by bit i % 128 of group i / 128.
inline void turn_signs(random::stream const& bits, std::uint64_t first, std::uint64_t count, float* x) {
  random::words4 w{};
  for (std::uint64_t i = 0; i < count;) {
    std::uint64_t const at = first + i;
    if (i == 0 || at % 128 == 0) w = bits.group(at / 128);
    std::uint32_t const word = w.word[at % 128 / 32];
    if (at % 32 == 0 && count - i >= 32) {
      turn_signs(word, x + i);
      i += 32;
    } else {
      x[i] = float_of(bits_of(x[i]) ^ word >> (at % 32) << 31);
      ++i;
    }
  }
}

}  // namespace GLOBALQ_ABI::baseline::detail
