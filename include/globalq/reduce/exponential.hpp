// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief reduce: the sum of two powers of two, rounded without bias to a power of two, in integers only.

#include "../core/concepts.hpp"
#include "../random/stream.hpp"
#include "detail/avx512.hpp"

namespace globalq::reduce {

/// @brief Adds codes of base-2 exponential levels: code e > 0 with its sign is +-2^-e, 0 is zero.
///
/// With e1 <= e2 and Delta = e2 - e1: equal signs give e1 - 1 with probability 2^-Delta, else e1; opposite signs give
/// zero for Delta = 0, else e1 + 1 with probability 2^(1-Delta), else e1. The event of probability 2^-D is "the low D
/// bits of the word are zero": exact for D <= 31; beyond that the probability is 2^-31 instead of 2^-D.
/// An addition lowers a code by at most one, so codes start above the height of the reduction (headroom).
/// @complexity about 15 integer operations, no branch, no floating point
/// @source Xin et al. (Global-QSGD), appendix B, Algorithm 2, with -ceil replaced by -floor (as printed the probability
///         is half of what it must be)
struct exponential {
  static constexpr char const* name() { return "exponential"; }
  static constexpr bool draws = true;

  template <class Lane>
  GLOBALQ_FUNCTION static Lane add(Lane a, Lane b, std::uint32_t word) {
    std::int32_t const ia = a, ib = b;
    std::int32_t const sa = ia >> 31, sb = ib >> 31;
    std::int32_t const ea = (ia ^ sa) - sa, eb = (ib ^ sb) - sb;
    // zero, turned into the largest unsigned number, is the smallest magnitude
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
    return static_cast<Lane>((e ^ sign) - sign);
  }

#if GLOBALQ_AVX512
  /// add() of the 256 codes of each of some tiles, with their words of stream @p s: out = a + b; out may be a or b.
  /// @param ahead  0, or how many codes ahead to ask for memory
  /// @returns the bits that the magnitudes of a and b have: at least the largest of them
  static std::uint32_t add_tiles(std::int8_t const* a, std::int8_t const* b, random::stream const& s,
                                 std::uint64_t tile, int tiles, std::int8_t* out, std::size_t ahead = 0) {
    random::detail::tile_source const draw(s);
    return detail::add_tiles<exponential>(
        a, b, [&](int t) { return draw(tile + static_cast<std::uint64_t>(t)); }, tiles, out, ahead);
  }
#endif
};

}  // namespace globalq::reduce
