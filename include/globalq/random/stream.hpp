// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief random: which bits a coordinate gets: a pure function of seed, step, worker, purpose and coordinate.
///
/// The mapping is part of the wire contract (a test pins it) and is the same on host and device:
///
/// - key = seed (low word, high word);
/// - counter word 0 = low 32 bits of the group; word 1 = group bits 32..43, purpose << 12, step bits 32..47 << 16;
///   word 2 = low 32 bits of the step; word 3 = worker;
/// - coordinate i = 256 t + 64 w + 4 l + r (0 <= w < 4, 0 <= l < 16, 0 <= r < 4) takes word w of group 16 t + l,
///   rotated left by 8 r bits.
///
/// So four neighbours share a word, each seeing a marginally uniform 32-bit number. Their decisions are nearly
/// independent. For up-probabilities with min(p, 1-p) >= 2^-24 the correlation of two of them is at most 1/256 when both
/// are the same power of two, 2/257 when both are equal, and 1/16 + 1/256 + 2^-12 whatever they are (2^-12 and 2^-4 nest);
/// the covariance is at most 2^-10 + 2^-26 + 2^-32 at any probabilities. Two events of probability 2^-k below 2^-24
/// correlate by at most 2^(k-32): both then need the same 32 bits. Tests count these exactly. The mapping makes loads of a GPU thread
/// 16 bytes wide and the words of a host tile straight vectors.

#include "detail/avx2.hpp"
#include "detail/avx512.hpp"
#include "philox.hpp"

namespace GLOBALQ_ABI::random {

/// What random bits are used for. Two uses never share a word.
enum class purpose : std::uint32_t {
  encode = 0,            ///< a worker's own values
  reduce = 1,            ///< adding two exponential codes; keyed by the worker that sent the frame
  requantise = 2,        ///< a partial sum
  shift = 3,             ///< random shift of a worker's own values; group = bucket
  shift_requantise = 4,  ///< random shift of a partial sum; group = bucket
  select = 5,            ///< which coordinates are sent (compressor::rand_k)
  rotate = 6,            ///< signs of a randomised transform (compressor::thc)
  start = 7  ///< where an iteration starts (compressor::power_sgd), and how a vote's ties fall (sign_sgd)
};

/// Largest step, worker and vector length that the counter can tell apart.
inline constexpr std::uint64_t max_step = (std::uint64_t{1} << 48) - 1;
inline constexpr std::uint64_t max_length = std::uint64_t{1} << 48;

/// Rounds of Philox used by the library: the fewest that pass the published batteries, and ours (tests/random).
inline constexpr int rounds = 7;

/// Values whose words are drawn together.
inline constexpr int tile_values = 256;

/// Everything but the coordinate.
struct stream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t worker = 0;
  purpose use = purpose::encode;

  /// The counter of a group.
  GLOBALQ_FUNCTION words4 counter(std::uint64_t g) const {
    return {{static_cast<std::uint32_t>(g),
             (static_cast<std::uint32_t>(g >> 32) & 0xfffU) | (static_cast<std::uint32_t>(use) << 12) |
                 (static_cast<std::uint32_t>(step >> 32) << 16),
             static_cast<std::uint32_t>(step), worker}};
  }

  /// The four words of a group.
  GLOBALQ_FUNCTION words4 group(std::uint64_t g) const {
    return philox<rounds>(counter(g), static_cast<std::uint32_t>(seed),
                          static_cast<std::uint32_t>(seed >> 32));
  }

  /// The word of one coordinate: the definition; kernels use fill().
  GLOBALQ_FUNCTION std::uint32_t word(std::uint64_t i) const {
    std::uint64_t const tile = i / tile_values;
    int const in_tile = static_cast<int>(i % tile_values);
    words4 const w = group(16 * tile + static_cast<std::uint64_t>(in_tile / 4 % 16));
    return rotate_left(w.word[in_tile / 64], 8 * (in_tile % 4));
  }
};

namespace detail {

/// Words of groups [lane, lane + Lanes) of a tile, as drawn: word w of group lane + l at raw[Lanes * w + l].
template <int Lanes>
GLOBALQ_FUNCTION void draw(stream const& s, std::uint64_t tile, int lane, std::uint32_t* raw) {
  for (int l = 0; l < Lanes; ++l) {
    words4 const v = s.group(16 * tile + static_cast<std::uint64_t>(lane + l));
    raw[l] = v.word[0];
    raw[Lanes + l] = v.word[1];
    raw[2 * Lanes + l] = v.word[2];
    raw[3 * Lanes + l] = v.word[3];
  }
}

/// fill() in portable code.
template <int Lanes>
GLOBALQ_FUNCTION void fill_portable(stream const& s, std::uint64_t tile, int lane, std::uint32_t* out) {
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
/// Draws the words of all groups of a tile, one tile after the other.
class tile_source {
 public:
  explicit tile_source(stream const& s)
      : stream_(s), keys_(static_cast<std::uint32_t>(s.seed), static_cast<std::uint32_t>(s.seed >> 32)) {}

#if GLOBALQ_AVX512
  template <group_order Order = group_order::ascending>
  GLOBALQ_ALWAYS_INLINE philox_rounds<Order, rounds> begin(std::uint64_t tile) const {
    return {stream_.counter(16 * tile).word, keys_};
  }
  template <group_order Order = group_order::ascending>
  GLOBALQ_ALWAYS_INLINE tile_words draw(std::uint64_t tile) const {
    auto words = begin<Order>(tile);
    words.template run<0, words.inner>();
    return words.last();
  }
  tile_words operator()(std::uint64_t tile) const { return draw(tile); }
#else
  GLOBALQ_ALWAYS_INLINE tile_words operator()(std::uint64_t tile) const {
    words4 const counter = stream_.counter(16 * tile);
    tile_words words;
    draw_half(counter.word, keys_, 0, words);
    draw_half(counter.word, keys_, 1, words);
    return words;
  }
#endif

 private:
  stream stream_;
  round_keys<rounds> keys_;
};
#endif

}  // namespace detail

/// The words of a thread's share: groups [lane, lane + Lanes) of a tile; with 16 lanes or more, tiles as a whole.
///
/// @tparam Lanes  a multiple of 16 on a host thread (16 values each), 2 on a GPU thread (32 values)
/// @param count   how many values need words, from the first on; others may get none
/// @param out     16 * Lanes words. Fewer than 16 lanes: four rows of 4 * Lanes, row w holding values 64 w + 4 lane ...
template <int Lanes>
GLOBALQ_FUNCTION void fill(stream const& s, std::uint64_t tile, int lane, std::uint32_t* out,
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

}  // namespace GLOBALQ_ABI::random
