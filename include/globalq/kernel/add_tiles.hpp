// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: `reduce::exponential` on one-byte codes of whole random tiles, with AVX2 or AVX-512 instructions.

#include "../reduce/exponential.hpp"
#include "words.hpp"
#if GLOBALQ_AVX512
#include "isa/exponential_avx512.hpp"
#elif GLOBALQ_AVX2
#include "isa/exponential_avx2.hpp"
#endif

namespace GLOBALQ_ABI::kernel {

#if GLOBALQ_AVX512 || GLOBALQ_AVX2
/// Adds the codes of @p tiles tiles of 256 codes, with their words of stream @p s: out = a + b; out may be a or b.
/// @param ahead  distance of the prefetch in codes; 0: no prefetch
/// @pre     no code is -128; otherwise that sum is unspecified, and the returned bits include 128
/// @returns the bitwise or of the magnitudes of a and b, which is at least the largest of them
inline std::uint32_t add_tiles(std::int8_t const* a, std::int8_t const* b, random::stream const& s,
                               std::uint64_t tile, int tiles, std::int8_t* out, std::size_t ahead = 0) {
  return detail::add_tiles<reduce::exponential>(a, b, detail::tile_source(s), tile, tiles, out, ahead);
}
#endif

}  // namespace GLOBALQ_ABI::kernel
