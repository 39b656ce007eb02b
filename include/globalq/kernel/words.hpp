// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: computes the random words of tiles; random/stream.hpp defines them.

#include "../random/stream.hpp"
#if GLOBALQ_AVX512
#include "isa/words_avx512.hpp"
#elif GLOBALQ_AVX2
#include "isa/words_avx2.hpp"
#endif

namespace GLOBALQ_ABI::kernel {

using random::tile_values;

namespace detail {

/// Words of groups [lane, lane + Lanes) of a tile, unspread: word w of group lane + l at raw[Lanes * w + l].
template <int Lanes>
GLOBALQ_FUNCTION void draw(random::stream const& s, std::uint64_t tile, int lane, std::uint32_t* raw) {
  for (int l = 0; l < Lanes; ++l) {
    random::words4 const v = s.group(16 * tile + static_cast<std::uint64_t>(lane + l));
    raw[l] = v.word[0];
    raw[Lanes + l] = v.word[1];
    raw[2 * Lanes + l] = v.word[2];
    raw[3 * Lanes + l] = v.word[3];
  }
}

/// fill_words() in portable code.
template <int Lanes>
GLOBALQ_FUNCTION void fill_portable(random::stream const& s, std::uint64_t tile, int lane,
                                    std::uint32_t* out) {
  std::uint32_t* __restrict words = out;
  std::uint32_t raw[4 * Lanes];
  draw<Lanes>(s, tile, lane, raw);
  for (int q = 0; q < 4 * Lanes; ++q) {
    std::uint32_t const w = raw[q];
    words[4 * q] = w;
    words[4 * q + 1] = rotate_left(w, 8);
    words[4 * q + 2] = rotate_left(w, 16);
    words[4 * q + 3] = rotate_left(w, 24);
  }
}

#if GLOBALQ_AVX512 || GLOBALQ_AVX2
/// Draws the words of all groups of a tile.
class tile_source {
 public:
  explicit tile_source(random::stream const& s)
      : stream_(s), keys_(static_cast<std::uint32_t>(s.seed), static_cast<std::uint32_t>(s.seed >> 32)) {}

#if GLOBALQ_AVX512
  template <group_order Order = group_order::ascending>
  GLOBALQ_ALWAYS_INLINE philox_rounds<Order, random::rounds> begin(std::uint64_t tile) const {
    return {stream_.counter(16 * tile).word, keys_};
  }
  template <group_order Order = group_order::ascending>
  GLOBALQ_ALWAYS_INLINE tile_words draw(std::uint64_t tile) const {
    auto words = begin<Order>(tile);
    words.template run<0, words.inner>();
    return words.last();
  }
#else
  template <group_order Order = group_order::ascending>
  GLOBALQ_ALWAYS_INLINE tile_words draw(std::uint64_t tile) const {
    random::words4 const counter = stream_.counter(16 * tile);
    tile_words words;
    draw_half<Order>(counter.word, keys_, 0, words);
    draw_half<Order>(counter.word, keys_, 1, words);
    return words;
  }
#endif
  tile_words operator()(std::uint64_t tile) const { return draw(tile); }

 private:
  random::stream stream_;
  round_keys<random::rounds> keys_;
};
#endif

}  // namespace detail

/// Computes the words of a thread's share: groups [lane, lane + Lanes) of a tile; with 16 lanes or more, of whole
/// tiles.
///
/// @tparam Lanes  a multiple of 16 on a host thread (16 values each), 2 on a GPU thread (32 values)
/// @param count   number of values that need words, starting with the first; other words may stay unwritten
/// @param out     16 * Lanes words. Fewer than 16 lanes: four rows of 4 * Lanes, row w holding values 64 w + 4 lane ...
template <int Lanes>
GLOBALQ_FUNCTION void fill_words(random::stream const& s, std::uint64_t tile, int lane, std::uint32_t* out,
                                 int count = 16 * Lanes) {
  if constexpr (Lanes >= 16) {
    static_assert(Lanes % 16 == 0);
#if GLOBALQ_AVX512 || GLOBALQ_AVX2
    detail::tile_source const draw(s);
    for (int at = 0; at < count; at += tile_values, ++tile) detail::spread(draw(tile), out + at);
#else
    for (int at = 0; at < count; at += tile_values, ++tile) detail::fill_portable<16>(s, tile, 0, out + at);
#endif
  } else {
    static_assert(Lanes >= 1);
    detail::fill_portable<Lanes>(s, tile, lane, out);
  }
}

}  // namespace GLOBALQ_ABI::kernel
