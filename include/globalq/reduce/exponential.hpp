// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief reduce: the sum of two powers of two, rounded without bias to a power of two, in integer arithmetic.

#include "../core/concepts.hpp"
#include "../core/quad.hpp"

namespace GLOBALQ_ABI::reduce {

/// @brief Adds codes of base-2 exponential levels: code e > 0 with its sign is +-2^-e, 0 is zero.
///
/// With e1 <= e2 and Delta = e2 - e1: equal signs give e1 - 1 with probability 2^-Delta, else e1; opposite signs give
/// zero for Delta = 0, else e1 + 1 with probability 2^(1-Delta), else e1. The event of probability 2^-D is "the low D
/// bits of the word are zero". It is exact for D <= 31; for larger D the probability is 2^-31.
/// An addition lowers a code by at most one, so codes start above the height of the reduction (headroom).
/// @complexity about 15 integer operations, no branch, no floating point
/// @source Xin et al. (Global-QSGD), appendix B, Algorithm 2, with -ceil replaced by -floor (the printed probability is
///         half the correct one)
struct exponential {
  static constexpr char const* name() { return "exponential"; }
  static constexpr bool draws = true;

  template <class Int>
  GLOBALQ_FUNCTION static Int add(Int a, Int b, std::uint32_t word) {
    std::int32_t const ia = a, ib = b;
    std::int32_t const sa = ia >> 31, sb = ib >> 31;
    std::int32_t const ea = (ia ^ sa) - sa, eb = (ib ^ sb) - sb;
    // zero becomes the largest unsigned number, and so the smallest magnitude
    std::uint32_t const ka = static_cast<std::uint32_t>(ea) - 1U, kb = static_cast<std::uint32_t>(eb) - 1U;
    bool const first = ka <= kb;
    std::int32_t const e1 = first ? ea : eb, e2 = first ? eb : ea;
    std::int32_t const sign = first ? sa : sb;
    std::int32_t const opposite = -static_cast<std::int32_t>(sa != sb);  // all ones when the signs differ
    std::int32_t const delta = e2 - e1;
    std::int32_t const at = delta + opposite;
    std::int32_t const shift = at < 0 ? 0 : (at > 31 ? 31 : at);
    bool const event = (word & ((1U << shift) - 1U)) == 0;
    std::int32_t const step = opposite | 1;  // equal signs double (code - 1), opposite signs halve (code + 1)
    std::int32_t const moved = e1 - (event && e2 != 0 ? step : 0);
    std::int32_t const e = opposite != 0 && delta == 0 ? 0 : moved;
    return static_cast<Int>((e ^ sign) - sign);
  }

  /// add() of four one-byte codes, which share a word: code r uses it rotated by 8 r bits.
  ///
  /// Codes are stored as k = magnitude - 1 in seven bits below a set top bit; zero is 0x7f, the smallest magnitude. The
  /// lowest byte of a word almost always decides; only if it is zero and more bits are needed, the others are examined.
  /// @pre no code is -128
  /// @complexity about 12 integer operations per code
  GLOBALQ_FUNCTION static std::uint32_t add_quad(std::uint32_t a, std::uint32_t b, std::uint32_t word) {
    using namespace quad;
    std::uint32_t const sa = signs(a), sb = signs(b);
    std::uint32_t const ka = ((a ^ sa) | tops) - (~sa & ones), kb = ((b ^ sb) | tops) - (~sb & ones);
    std::uint32_t const difference = (kb | tops) - (ka & lows);
    std::uint32_t const first = signs(difference);  // |a| >= |b|
    std::uint32_t const opposite = sa ^ sb;
    // `at` of add(), with the top bit set unless it is -1
    std::uint32_t const at = ((difference ^ ~first) | tops) + (~first & ones) - (opposite & ones);
    std::uint32_t const many = signs((at & 0x78787878U) + 0x78787878U);  // 8 bits or more
    std::uint32_t const few = at & 0x07070707U;
    std::uint32_t const mask =  // 2^few - 1, from a table of eight bytes
        permute(0x07030100U, 0x7f3f1f0fU, permute(few | (few >> 4), 0, 0x4420));
    std::uint32_t const lowest = permute(word, 0, 0x1230);  // the lowest byte of each code's rotated word
    std::uint32_t const asked = lowest & (mask | many);
    std::uint32_t event = signs(ka & kb & zeros(asked));  // neither code is zero
    if ((event & many) != 0) event &= deeper(at, word);
    std::uint32_t const larger = (ka & first) | (kb & ~first), sign = (sa & first) | (sb & ~first);
    std::uint32_t const moved = (event & opposite & 0x02020202U) | (~event & ones);  // 0, 1 or 2
    std::uint32_t const e = (larger + moved) & signs(at);
    return with_sign(e & lows, sign);
  }

 private:
  /// 0xff for each code that does not cancel and for which all bits that add() tests are zero.
  GLOBALQ_FUNCTION static std::uint32_t deeper(std::uint32_t at, std::uint32_t word) {
    std::uint32_t events = 0;
    for (int r = 0; r < 4; ++r) {
      std::uint32_t const bits = ((at >> (8 * r)) & 0xffU) - 0x80U, shift = bits > 31 ? 31 : bits;
      if (bits < 0x80 && (rotate_left(word, 8 * r) & ((1U << shift) - 1U)) == 0) events |= 0xffU << (8 * r);
    }
    return events;
  }
};

}  // namespace GLOBALQ_ABI::reduce
