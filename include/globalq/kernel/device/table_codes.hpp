// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: encodes a GPU thread's values by a table of levels.
///
/// Each step processes all values before the next step begins, so that their gathers overlap. Indices become codes four
/// at a time, in the bytes of a register.

#include "../../core/quad.hpp"
#include "table.hpp"

#include <type_traits>

namespace GLOBALQ_ABI::kernel::device {

/// Whether encode_by_table() encodes rows. Roundings without compared() use locate() and up() for each value.
template <class Levels, class Rounding>
inline constexpr bool by_table = std::is_same_v<Levels, table_view>&& ComparesWords<Rounding>;

/// Bits 24 to 31 of four words, packed into one.
GLOBALQ_FUNCTION std::uint32_t upper_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                           std::uint32_t d) {
  return quad::permute(quad::permute(a, b, 0x73), quad::permute(c, d, 0x73), 0x5410);
}

/// Encodes values on the scale of the levels, as many as fit the registers.
/// @tparam R,N  number of rows, and values per row
template <int R, int N, class Rounding>
class table_codes {
 public:
  /// @param z  R rows
  GLOBALQ_FUNCTION table_codes(table_view const& levels, Rounding const& rounding, float const (*z)[N])
      : levels_(levels), rounding_(rounding) {
    each([&](int r, int i) { t_[r][i] = magnitude(z[r][i]); });
    each_quad([&](int r, int q) {
      float const* const v = z[r] + 4 * q;
      sign_[r][q] = quad::signs(upper_bytes(bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])));
    });
  }

  /// @param word  word(row, position) is the word of a value, before the rotation if four values share one
  /// @param out   R rows of codes, all zero
  template <class Word, class Row>
  GLOBALQ_FUNCTION void encode(Word const& word, Row* out) const {
    std::uint32_t place[R][N];
    find_gaps(place);
    bool open = false;
    each([&](int r, int i) {
      place[r][i] = levels_.place_of(t_[r][i], place[r][i], negated(word, r, i));
      open = open || levels_.is_open(place[r][i]);
    });
    if (open) decide(word, place);
    std::uint32_t index[R][N / 4], sign[R][N / 4];
    each_quad([&](int r, int q) {
      std::uint32_t const* const p = place[r] + 4 * q;
      index[r][q] = upper_bytes(p[0], p[1], p[2], p[3]);
      sign[r][q] = sign_[r][q];
    });
    if (levels_.zero_free() || levels_.reversed())
      each_quad([&](int r, int q) { to_codes(index[r][q], sign[r][q]); });
    each_quad([&](int r, int q) { set(out[r], q, quad::with_sign(index[r][q], sign[r][q])); });
  }

 private:
  template <class F>
  GLOBALQ_FUNCTION static void each(F const& f) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < N; ++i) f(r, i);
    }
  }
  template <class F>
  GLOBALQ_FUNCTION static void each_quad(F const& f) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      GLOBALQ_UNROLL
      for (int q = 0; q < N / 4; ++q) f(r, q);
    }
  }

  /// At most 1; NaN counts as 1, the last level.
  GLOBALQ_FUNCTION static float magnitude(float z) {
#if defined(__CUDA_ARCH__)
    return fminf(fabsf(z), 1.0F);
#else
    std::uint32_t const m = bits_of(z) & float_magnitude, top = bits_of(1.0F);
    return float_of(m < top ? m : top);
#endif
  }

  template <class Word>
  GLOBALQ_FUNCTION std::uint32_t compared(Word const& word, int r, int i) const {
    std::uint32_t const w = Rounding::word_per_coordinate ? rotate_left(word(r, i), 8 * (i % 4)) : word(r, i);
    std::uint32_t const negative = (sign_[r][i / 4] >> (8 * (i % 4))) & 1U;
    return rounding_.compared(w, 0U - negative);
  }

  /// The upper 24 bits of ~compared().
  template <class Word>
  GLOBALQ_FUNCTION std::uint32_t negated(Word const& word, int r, int i) const {
    if constexpr (ComparesWordsAlone<Rounding>) {  // rotates and shifts in one step
      int const k = i % 4;
      return quad::permute(~word(r, i), 0, k == 0 ? 0x4321 : (k == 1 ? 0x4210 : (k == 2 ? 0x4103 : 0x4032)));
    } else {
      return ~compared(word, r, i) >> 8;
    }
  }

  GLOBALQ_FUNCTION void find_gaps(std::uint32_t (&gap)[R][N]) const {
    if (levels_.has_cells()) {
      each([&](int r, int i) { gap[r][i] = levels_.gap_of(t_[r][i]); });
      return;
    }
    each([&](int r, int i) { gap[r][i] = table_view::first_gap; });
    GLOBALQ_NO_UNROLL
    for (std::uint32_t step = 64; step > 0; step /= 2)
      each([&](int r, int i) { gap[r][i] += levels_.begins_above(gap[r][i] + step, t_[r][i]) ? 0U : step; });
  }

  /// Decides open places by the definition, one at a time. They are rare, so the code is small rather than fast.
  template <class Word>
  GLOBALQ_FUNCTION void decide(Word const& word, std::uint32_t (&place)[R][N]) const {
    GLOBALQ_NO_UNROLL
    for (;;) {
      int chosen = -1;
      float t = 0;
      std::uint32_t w = 0;
      each([&](int r, int i) {
        bool const open = levels_.is_open(place[r][i]);
        chosen = open ? N * r + i : chosen;
        t = open ? t_[r][i] : t;
        w = open ? compared(word, r, i) : w;
      });
      if (chosen < 0) return;
      std::uint32_t const decided = levels_.decided_place(t, w);
      each([&](int r, int i) { place[r][i] = chosen == N * r + i ? decided : place[r][i]; });
    }
  }

  /// Converts four indices to codes, for levels whose indices are not their codes.
  GLOBALQ_FUNCTION void to_codes(std::uint32_t& index, std::uint32_t& sign) const {
    std::uint32_t const zero = quad::signs(quad::zeros(index));
    if (levels_.reversed()) index = ((levels_.max_code() + 1) * quad::ones - index) & ~zero;
    if (levels_.zero_free()) {  // index 0 is minus the first level
      index |= zero & quad::ones;
      sign ^= zero;
    }
  }

  template <class Row>
  GLOBALQ_FUNCTION static void set(Row& row, int q, std::uint32_t codes) {
    if constexpr (Row::width == 8) {
      row.word[q] = codes;
    } else {
      GLOBALQ_UNROLL
      for (int k = 0; k < 4; ++k) row.set(4 * q + k, static_cast<std::int8_t>(codes >> (8 * k)));
    }
  }

  table_view const& levels_;
  Rounding const& rounding_;
  float t_[R][N];                 ///< magnitudes, at most 1
  std::uint32_t sign_[R][N / 4];  ///< 0xff in the bytes of negative values
};

/// Encodes all rows of a thread, 16 values at a time.
/// @param word  word(row, position) is the word of a value, before the rotation if four values share one
template <int R, int N, class Rounding, class Word, class Row>
GLOBALQ_FUNCTION void encode_by_table(table_view const& levels, Rounding const& rounding,
                                      float const (&z)[R][N], Word const& word, Row (&out)[R]) {
  constexpr int rows = R * N > 16 ? 16 / N : R;
  GLOBALQ_UNROLL
  for (int first = 0; first < R; first += rows) {
    table_codes<rows, N, Rounding> const some(levels, rounding, z + first);
    some.encode([&](int r, int i) { return word(first + r, i); }, out + first);
  }
}

}  // namespace GLOBALQ_ABI::kernel::device
