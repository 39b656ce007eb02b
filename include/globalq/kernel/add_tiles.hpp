// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: reduce::exponential on codes of one byte, in whole random tiles, where it is written out for this machine.

#include "../reduce/exponential.hpp"
#include "isa/exponential_avx2.hpp"
#include "isa/exponential_avx512.hpp"
#include "words.hpp"

namespace GLOBALQ_ABI::kernel {

#if GLOBALQ_AVX512 || GLOBALQ_AVX2
/// add() of the 256 codes of each of some tiles, with their words of stream @p s: out = a + b; out may be a or b.
/// @param ahead  0, or how many codes ahead to ask for memory
/// @pre     no code is -128: a sum with one is not specified, and the result tells of it by 128
/// @returns the bits that the magnitudes of a and b have: at least the largest of them
inline std::uint32_t add_tiles(std::int8_t const* a, std::int8_t const* b, random::stream const& s,
                               std::uint64_t tile, int tiles, std::int8_t* out, std::size_t ahead = 0) {
  return detail::add_tiles<reduce::exponential>(a, b, detail::tile_source(s), tile, tiles, out, ahead);
}
#endif

}  // namespace GLOBALQ_ABI::kernel
