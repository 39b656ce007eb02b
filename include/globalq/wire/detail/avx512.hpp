// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: compaction with AVX-512 instructions; same results as the portable version.

#include "../../core/arithmetic.hpp"

#if GLOBALQ_AVX512 && defined(__AVX512VBMI2__)

#include <immintrin.h>

#include <cstddef>
#include <cstring>

namespace GLOBALQ_ABI::wire::detail {

/// See compact.hpp.
struct avx512_compaction {
  static int positions(std::int8_t const* codes, int count, std::uint16_t* out) {
    return all_positions(count, out, [=](int i, __mmask32 lanes) {
      __m256i const c = _mm256_maskz_loadu_epi8(lanes, codes + i);
      return _mm256_test_epi8_mask(c, c);
    });
  }
  static int positions(std::int16_t const* codes, int count, std::uint16_t* out) {
    return all_positions(count, out, [=](int i, __mmask32 lanes) {
      __m512i const c = _mm512_maskz_loadu_epi16(lanes, codes + i);
      return _mm512_test_epi16_mask(c, c);
    });
  }

  static int non_zeros(std::int8_t const* codes, int count, std::int8_t* out, std::byte* bitmap) {
    int n = 0;
    for (int i = 0; i < count; i += 64) {
      int const left = count - i;
      __m512i const c = _mm512_maskz_loadu_epi8(first_lanes<__mmask64>(left), codes + i);
      __mmask64 const is = _mm512_test_epi8_mask(c, c);
      _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi8(is, c));
      std::memcpy(bitmap + i / 8, &is, left >= 64 ? 8 : static_cast<std::size_t>((left + 7) / 8));
      n += one_bits(is);
    }
    return n;
  }
  static int non_zeros(std::int16_t const* codes, int count, std::int16_t* out, std::byte* bitmap) {
    int n = 0;
    for (int i = 0; i < count; i += 32) {
      int const left = count - i;
      __m512i const c = _mm512_maskz_loadu_epi16(first_lanes<__mmask32>(left), codes + i);
      __mmask32 const is = _mm512_test_epi16_mask(c, c);
      _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi16(is, c));
      std::memcpy(bitmap + i / 8, &is, left >= 32 ? 4 : static_cast<std::size_t>((left + 7) / 8));
      n += one_bits(is);
    }
    return n;
  }

  static void expand(std::byte const* bitmap, std::int8_t const* values, int count, std::int8_t* codes) {
    for (int i = 0; i < count; i += 64) {
      int const left = count - i;
      __mmask64 is = 0;
      std::memcpy(&is, bitmap + i / 8, left >= 64 ? 8 : static_cast<std::size_t>((left + 7) / 8));
      _mm512_mask_storeu_epi8(codes + i, first_lanes<__mmask64>(left),
                              _mm512_maskz_expand_epi8(is, _mm512_loadu_si512(values)));
      values += one_bits(is);
    }
  }
  static void expand(std::byte const* bitmap, std::int16_t const* values, int count, std::int16_t* codes) {
    for (int i = 0; i < count; i += 32) {
      int const left = count - i;
      __mmask32 is = 0;
      std::memcpy(&is, bitmap + i / 8, left >= 32 ? 4 : static_cast<std::size_t>((left + 7) / 8));
      _mm512_mask_storeu_epi16(codes + i, first_lanes<__mmask32>(left),
                               _mm512_maskz_expand_epi16(is, _mm512_loadu_si512(values)));
      values += one_bits(is);
    }
  }

 private:
  /// Lanes [0, count), at most all.
  template <class Mask>
  static Mask first_lanes(int count) {
    constexpr int all = 8 * sizeof(Mask);
    return count >= all ? static_cast<Mask>(-1) : static_cast<Mask>((Mask{1} << count) - 1);
  }

  template <class F>
  static int all_positions(int count, std::uint16_t* out, F const& non_zero) {
    alignas(64) static constexpr auto ramp = [] {
      struct {
        std::uint16_t at[32];
      } r{};
      for (int i = 0; i < 32; ++i) r.at[i] = static_cast<std::uint16_t>(i);
      return r;
    }();
    __m512i index = _mm512_load_si512(ramp.at);
    int n = 0;
    for (int i = 0; i < count; i += 32) {
      __mmask32 const is = non_zero(i, first_lanes<__mmask32>(count - i));
      _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi16(is, index));
      n += one_bits(is);
      index = _mm512_add_epi16(index, _mm512_set1_epi16(32));
    }
    return n;
  }
};

}  // namespace GLOBALQ_ABI::wire::detail

#endif
