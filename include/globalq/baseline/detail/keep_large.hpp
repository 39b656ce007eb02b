// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: selects the values of a block whose magnitude reaches a threshold, in order.

#include "../../kernel/isa/halves_avx512.hpp"

#include <cstdint>

#if GLOBALQ_AVX2
#include <immintrin.h>
#endif

namespace GLOBALQ_ABI::baseline::detail {

/// The values that may be among the largest: magnitudes as integers in the same order, and places.
struct candidates {
  std::uint32_t* places;
  std::uint32_t* bits;
};

/// The number of entries that keep_large() may write after the last candidate.
inline constexpr std::uint64_t keep_slack = 16;

/// keep_large() in portable code: skips 32 values at a time if none of them is large.
GLOBALQ_LOOP std::uint64_t keep_large_portable(float const* x, std::uint32_t first, std::uint64_t count,
                                               std::uint32_t least, candidates out) {
  std::uint64_t kept = 0;
  auto const look = [&](std::uint64_t from, std::uint64_t end) {
    for (std::uint64_t i = from; i < end; ++i) {
      std::uint32_t const b = bits_of(x[i]) & float_magnitude;
      out.places[kept] = first + static_cast<std::uint32_t>(i);
      out.bits[kept] = b;
      kept += b >= least ? 1 : 0;
    }
  };
  std::uint64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    std::uint32_t any = 0;
    for (int j = 0; j < 32; ++j)
      any |= (bits_of(x[i + static_cast<std::uint64_t>(j)]) & float_magnitude) >= least ? 1U : 0U;
    if (any != 0) look(i, i + 32);
  }
  look(i, count);
  return kept;
}

/// Copies the magnitudes below @p sure, in any order. @returns their number
GLOBALQ_LOOP std::uint64_t keep_unsure(std::uint32_t const* bits, std::uint64_t count, std::uint32_t sure,
                                       std::uint32_t* out) {
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t const b = bits[i];
    out[kept] = b;
    kept += b < sure ? 1 : 0;
  }
  return kept;
}

#if GLOBALQ_AVX512
GLOBALQ_LOOP std::uint64_t keep_large_avx512(float const* x, std::uint32_t first, std::uint64_t count,
                                             std::uint32_t least, candidates out) {
  std::uint64_t kept = 0;
  __m512i const magnitude = _mm512_set1_epi32(static_cast<int>(float_magnitude));
  __m512i const threshold = _mm512_set1_epi32(static_cast<int>(least));
  __m512i places = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                                    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i const sixteen = _mm512_set1_epi32(16);
  for (std::uint64_t i = 0; i < count; i += 16) {
    __mmask16 const there = kernel::detail::first_lanes(count - i < 16 ? static_cast<int>(count - i) : 16);
    __m512i const b = _mm512_and_si512(_mm512_maskz_loadu_epi32(there, x + i), magnitude);
    __mmask16 const large = _mm512_mask_cmpge_epu32_mask(there, b, threshold);
    // storing all 16 is faster than a store of some
    _mm512_storeu_si512(out.places + kept, _mm512_maskz_compress_epi32(large, places));
    _mm512_storeu_si512(out.bits + kept, _mm512_maskz_compress_epi32(large, b));
    kept += static_cast<std::uint64_t>(__builtin_popcount(large));
    places = _mm512_add_epi32(places, sixteen);
  }
  return kept;
}
#endif

#if GLOBALQ_AVX2
/// Entry m: the numbers of the lanes whose bit is set in m, packed, one byte each; the argument of AVX2's permutation.
struct packed_lanes {
  std::uint64_t lane[256] = {};
  constexpr packed_lanes() {
    for (unsigned m = 0; m < 256; ++m)
      for (unsigned i = 0, at = 0; i < 8; ++i)
        if ((m >> i & 1U) != 0) lane[m] |= std::uint64_t{i} << (8 * at++);
  }
};
inline constexpr packed_lanes packed{};

GLOBALQ_LOOP std::uint64_t keep_large_avx2(float const* x, std::uint32_t first, std::uint64_t count,
                                           std::uint32_t least, candidates out) {
  std::uint64_t kept = 0;
  __m256i const numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i const magnitude = _mm256_set1_epi32(static_cast<int>(float_magnitude));
  // magnitudes are not negative as signed integers
  __m256i const below = _mm256_set1_epi32(static_cast<int>(least - 1U));
  __m256i places = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), numbers);
  auto const take = [&](__m256i values, __m256i there) {
    __m256i const b = _mm256_and_si256(values, magnitude);
    __m256i const is = _mm256_and_si256(_mm256_cmpgt_epi32(b, below), there);
    auto const large = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(is)));
    __m256i const lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(packed.lane[large])));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.places + kept),
                        _mm256_permutevar8x32_epi32(places, lanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.bits + kept), _mm256_permutevar8x32_epi32(b, lanes));
    kept += static_cast<std::uint64_t>(__builtin_popcount(large));
    places = _mm256_add_epi32(places, _mm256_set1_epi32(8));
  };
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8)
    take(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(x + i)), _mm256_set1_epi32(-1));
  __m256i const rest = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count - i)), numbers);
  take(_mm256_maskload_epi32(reinterpret_cast<int const*>(x + i), rest), rest);
  return kept;
}
#endif

/// @brief Writes places and magnitudes of the values whose magnitude is @p least or more, ascending by place.
/// @param first  place of the first value
/// @shape out: count + keep_slack
/// @returns their number
inline std::uint64_t keep_large(float const* x, std::uint32_t first, std::uint64_t count, std::uint32_t least,
                                candidates out) {
#if GLOBALQ_AVX512
  return keep_large_avx512(x, first, count, least, out);
#elif GLOBALQ_AVX2
  return keep_large_avx2(x, first, count, least, out);
#else
  return keep_large_portable(x, first, count, least, out);
#endif
}

/// The number of magnitudes that are @p least or more.
GLOBALQ_LOOP std::uint64_t count_from(float const* x, std::uint64_t count, std::uint32_t least) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; i += 4096) {
    std::uint32_t here = 0;
    std::uint64_t const end = count - i < 4096 ? count : i + 4096;
    for (std::uint64_t j = i; j < end; ++j) here += (bits_of(x[j]) & float_magnitude) >= least ? 1U : 0U;
    sum += here;
  }
  return sum;
}

/// Counts the highest 11 bits of magnitudes, from bit @p shift on, in four tables, because neighbors often have equal
/// digits.
GLOBALQ_LOOP void count_digits(float const* x, std::uint64_t count, int shift, std::uint32_t* counts) {
  std::uint32_t* __restrict tables = counts;
  auto const digit = [=](std::uint64_t i) { return (bits_of(x[i]) & float_magnitude) >> shift; };
  std::uint64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    ++tables[digit(i)];
    ++tables[2048 + digit(i + 1)];
    ++tables[4096 + digit(i + 2)];
    ++tables[6144 + digit(i + 3)];
  }
  for (; i < count; ++i) ++tables[digit(i)];
}

/// Counts a digit of the magnitudes whose @p known bits equal @p prefix; skips 16 values at a time if there are none.
GLOBALQ_LOOP void count_digits(float const* x, std::uint64_t count, std::uint32_t known, std::uint32_t prefix,
                               int shift, std::uint32_t mask, std::uint32_t* counts) {
  auto const look = [&](std::uint64_t from, std::uint64_t end) {
    for (std::uint64_t i = from; i < end; ++i) {
      std::uint32_t const b = bits_of(x[i]);
      if ((b & known) == prefix) ++counts[(i % 4) * 2048 + (b >> shift & mask)];
    }
  };
  std::uint64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    std::uint32_t any = 0;
    for (int j = 0; j < 16; ++j)
      any |= (bits_of(x[i + static_cast<std::uint64_t>(j)]) & known) == prefix ? 1U : 0U;
    if (any != 0) look(i, i + 16);
  }
  look(i, count);
}

}  // namespace GLOBALQ_ABI::baseline::detail
