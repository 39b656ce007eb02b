// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief random: the random bits of a coordinate, a pure function of seed, step, worker, purpose and coordinate.
///
/// The mapping is part of the wire format (a test checks it) and is the same on host and device:
///
/// - key = seed (low word, high word);
/// - counter word 0 = low 32 bits of the group; word 1 = group bits 32..43, purpose << 12, step bits 32..47 << 16;
///   word 2 = low 32 bits of the step; word 3 = worker;
/// - coordinate i = 256 t + 64 w + 4 l + r (0 <= w < 4, 0 <= l < 16, 0 <= r < 4) takes word w of group 16 t + l,
///   rotated left by 8 r bits.
///
/// Four neighbors thus share a word; for each it is a uniform 32-bit number, and their decisions are nearly
/// independent. For up-probabilities with min(p, 1-p) >= 2^-24 the correlation of two decisions is at most 1/256 if
/// both are the same power of two, 2/257 if both are equal, and 1/16 + 1/256 + 2^-12 for any values (2^-12 and 2^-4
/// nest); the covariance is at most 2^-10 + 2^-26 + 2^-32 at any probabilities. Two events of probability 2^-k below
/// 2^-24 have a correlation of at most 2^(k-32), because both need the same 32 bits. Tests verify these bounds exactly.
/// With this mapping, loads of a GPU thread are 16 bytes wide, and the words of a host tile are contiguous vectors.

#include "philox.hpp"

namespace GLOBALQ_ABI::random {

/// The use of random bits. Two uses never share a word.
enum class purpose : std::uint32_t {
  encode = 0,            ///< a worker's own values
  reduce = 1,            ///< adding two exponential codes; the key contains the worker that sent the frame
  requantize = 2,        ///< a partial sum
  shift = 3,             ///< random shift of a worker's own values; group = bucket
  shift_requantize = 4,  ///< random shift of a partial sum; group = bucket
  select = 5,            ///< selection of coordinates (baseline::rand_k)
  rotate = 6,            ///< signs of a randomized transform (rotated, baseline::thc)
  start = 7,  ///< initial value of an iteration (baseline::power_sgd), and ties of votes (sign_sgd)
  share =
      8,  ///< what workers share of their roundings (correlated): shared_words; the key contains the cohort
  turn = 9,             ///< signs of a worker's rotation of its own values (eden)
  turn_requantize = 10  ///< the same of a partial sum
};

/// Largest step, worker and vector length that the counter distinguishes.
inline constexpr std::uint64_t max_step = (std::uint64_t{1} << 48) - 1;
inline constexpr std::uint64_t max_length = std::uint64_t{1} << 48;

/// Rounds of Philox used by the library: the fewest that pass the published batteries, and ours (tests/random).
inline constexpr int rounds = 7;

/// Values whose words are computed together.
inline constexpr int tile_values = 256;

/// The arguments of the mapping except the coordinate.
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

  /// The word of one coordinate. This is the definition; kernels use kernel::fill_words().
  GLOBALQ_FUNCTION std::uint32_t word(std::uint64_t i) const {
    std::uint64_t const tile = i / tile_values;
    int const in_tile = static_cast<int>(i % tile_values);
    words4 const w = group(16 * tile + static_cast<std::uint64_t>(in_tile / 4 % 16));
    return rotate_left(w.word[in_tile / 64], 8 * (in_tile % 4));
  }
};

/// The 16 words of a tile that workers share: word k of tile t is word k % 4 of group 4 t + k / 4 of purpose `share`.
class shared_words {
 public:
  GLOBALQ_FUNCTION shared_words(stream const& s, std::uint64_t tile) {
    GLOBALQ_UNROLL
    for (int g = 0; g < 4; ++g) {
      words4 const drawn = s.group(4 * tile + static_cast<std::uint64_t>(g));
      GLOBALQ_UNROLL
      for (int w = 0; w < 4; ++w) word_[4 * g + w] = drawn.word[w];
    }
  }
  GLOBALQ_FUNCTION std::uint32_t const* data() const { return word_; }

 private:
  std::uint32_t word_[16];
};

}  // namespace GLOBALQ_ABI::random
