// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the randomized Hadamard transform of a block: signs, then sums and differences.

#include "../random/stream.hpp"
#include "isa/as_is.hpp"
#include "isa/halves_avx512.hpp"

#include <cstdint>

#if GLOBALQ_AVX2 || GLOBALQ_AVX512
#include <immintrin.h>
#endif

namespace GLOBALQ_ABI::kernel {

/// One stage of the transform of @p count values: sums and differences of values @p reach apart.
/// @tparam T  float or double
template <class T>
GLOBALQ_LOOP void butterflies(T* x, std::uint64_t count, std::uint64_t reach) {
  for (std::uint64_t at = 0; at < count; at += 2 * reach) {
    T* __restrict low = x + at;
    T* __restrict high = x + at + reach;
    for (std::uint64_t i = 0; i < reach; ++i) {
      T const a = low[i], b = high[i];
      low[i] = a + b;
      high[i] = a - b;
    }
  }
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

#if GLOBALQ_AVX2 || GLOBALQ_AVX512
/// a + b and a - b.
GLOBALQ_ALWAYS_INLINE void butterfly(__m256& a, __m256& b) {
  __m256 const sum = as_is(_mm256_add_ps(a, b));
  b = as_is(_mm256_sub_ps(a, b));
  a = sum;
}

/// The stages of reach 1 to 32, in registers: within eight values a partner, plus or minus the value. The same sums, so the
/// same bits.
/// @param count  a multiple of 64
GLOBALQ_LOOP void butterflies_of_64(float* x, std::uint64_t count) {
  constexpr int minus = 1 << 31;
  __m256 const odd = _mm256_castsi256_ps(_mm256_setr_epi32(0, minus, 0, minus, 0, minus, 0, minus)),
               upper_two = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, minus, minus, 0, 0, minus, minus)),
               upper_four = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, 0, 0, minus, minus, minus, minus));
  for (std::uint64_t at = 0; at < count; at += 64) {
    __m256 v[8];
    for (int k = 0; k < 8; ++k) {
      __m256 y = _mm256_loadu_ps(x + at + 8 * k);
      y = as_is(_mm256_add_ps(_mm256_permute_ps(y, 0xb1), _mm256_xor_ps(y, odd)));
      y = as_is(_mm256_add_ps(_mm256_permute_ps(y, 0x4e), _mm256_xor_ps(y, upper_two)));
      v[k] = as_is(_mm256_add_ps(_mm256_permute2f128_ps(y, y, 1), _mm256_xor_ps(y, upper_four)));
    }
    for (int reach = 1; reach < 8; reach *= 2)
      for (int k = 0; k < 8; ++k)
        if ((k & reach) == 0) butterfly(v[k], v[k + reach]);
    for (int k = 0; k < 8; ++k) _mm256_storeu_ps(x + at + 8 * k, v[k]);
  }
}

/// Two stages at once, of @p reach and twice that.
/// @param reach  a multiple of 8
GLOBALQ_LOOP void two_butterflies(float* x, std::uint64_t count, std::uint64_t reach) {
  for (std::uint64_t at = 0; at < count; at += 4 * reach)
    for (std::uint64_t i = at; i < at + reach; i += 8) {
      __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + reach),
             c = _mm256_loadu_ps(x + i + 2 * reach), d = _mm256_loadu_ps(x + i + 3 * reach);
      butterfly(a, b);
      butterfly(c, d);
      butterfly(a, c);
      butterfly(b, d);
      _mm256_storeu_ps(x + i, a);
      _mm256_storeu_ps(x + i + reach, b);
      _mm256_storeu_ps(x + i + 2 * reach, c);
      _mm256_storeu_ps(x + i + 3 * reach, d);
    }
}
#endif

/// @brief x = H x, without a factor: H H = count.
/// @param count  a power of two
/// @determinism  sums of two in a fixed order, without products: the same bits everywhere
template <class T>
void hadamard(T* x, std::uint64_t count) {
  std::uint64_t reach = 1;
#if GLOBALQ_AVX2 || GLOBALQ_AVX512
  if constexpr (sizeof(T) == sizeof(float)) {
#if GLOBALQ_AVX512
    if (count >= 16) {
      butterflies_of_16(x, count);
      reach = 16;
    }
#else
    if (count >= 64) {
      butterflies_of_64(x, count);
      reach = 64;
    }
#endif
    for (; reach >= 8 && 4 * reach <= count; reach *= 4) two_butterflies(x, count, reach);
  }
#endif
  for (; reach < count; reach *= 2) butterflies(x, count, reach);
}

/// out = in * factor for 32 values, with signs changed by the bits of a word. Returns the bit pattern of the largest
/// magnitude.
GLOBALQ_LOOP std::int32_t turn_32(std::uint32_t word, float factor, float const* in, float* out) {
  std::int32_t top = 0;
  GLOBALQ_INDEPENDENT
  for (int j = 0; j < 32; ++j) {
    std::uint32_t const bits = bits_of(in[j] * factor) ^ word >> j << 31;
    auto const m = static_cast<std::int32_t>(bits & float_magnitude);
    top = top < m ? m : top;
    out[j] = float_of(bits);
  }
  return top;
}
GLOBALQ_LOOP std::int64_t turn_32(std::uint32_t word, double factor, double const* in, double* out) {
  std::int64_t top = 0;
  GLOBALQ_INDEPENDENT
  for (int j = 0; j < 32; ++j) {
    std::uint64_t const bits = bits_of(in[j] * factor) ^ std::uint64_t{word} >> j << 63;
    auto const m = static_cast<std::int64_t>(bits & double_magnitude);
    top = top < m ? m : top;
    out[j] = double_of(bits);
  }
  return top;
}

/// out = in * factor with random signs: value i of the vector by bit i % 128 of group i / 128.
/// @param first  index of the first value
/// @param out    may be @p in
/// @returns whether all results are finite
template <class T>
bool turn_signs(random::stream const& bits, std::uint64_t first, std::uint64_t count, T factor, T const* in,
                T* out) {
  random::words4 w{};
  decltype(turn_32(0, factor, in, out)) top = 0;
  for (std::uint64_t i = 0; i < count;) {
    std::uint64_t const at = first + i;
    if (i == 0 || at % 128 == 0) w = bits.group(at / 128);
    std::uint32_t const word = w.word[at % 128 / 32];
    if (at % 32 == 0 && count - i >= 32) {
      auto const m = turn_32(word, factor, in + i, out + i);
      top = top < m ? m : top;
      i += 32;
    } else {
      T padded[32] = {in[i]};
      auto const m = turn_32(word >> (at % 32), factor, padded, padded);
      top = top < m ? m : top;
      out[i++] = padded[0];
    }
  }
  return is_finite(sizeof(T) == 4 ? static_cast<T>(float_of(static_cast<std::uint32_t>(top)))
                                  : static_cast<T>(double_of(static_cast<std::uint64_t>(top))));
}
/// The same in place, without a factor.
template <class T>
void turn_signs(random::stream const& bits, std::uint64_t first, std::uint64_t count, T* x) {
  turn_signs(bits, first, count, T{1}, x, x);
}

}  // namespace GLOBALQ_ABI::kernel
