// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: leaves: loops over values in L1, by pointers to functions, and what they are given.
///
/// The bodies of a host call (host/combine.hpp, host/mean.hpp) are compiled once for each lane and call leaves; these are
/// all that is compiled for each set of instructions. Those of levels work on at most host_values values, and on
/// all runs of them that share a scale, so that short buckets do not cost a call each.

#include "../core/dtype.hpp"
#include "../norm/statistic.hpp"
#include "../random/stream.hpp"

#include <cstddef>

namespace GLOBALQ_ABI::kernel {

/// Groups that a host thread treats together. Few enough for L1, and enough that what is done once for them is cheap.
inline constexpr int host_lanes = 64;
inline constexpr std::uint64_t host_values = 16 * host_lanes;

/// Values that leaves take at once: the usual number, and the most.
inline constexpr int piece_values = static_cast<int>(host_values);

/// Consecutive values that share a scale, to be encoded.
struct encoded_run {
  float const* values;
  int at, count;        ///< within the piece
  float gain;           ///< values times this are on the scale of the levels
  std::uint32_t drawn;  ///< the bucket's word, where values have none of their own
};

/// Consecutive codes that share a scale: (level + shift) * factor, then a store_scale.
struct decoded_run {
  int at, count;
  float shift, factor;
  float scale, post;  ///< of decode: the factors of a store_scale
};

/// What adds codes, for a reduce operator.
template <class Lane>
struct reduce_leaves {
  /// out = a + b; out may be a or b.
  void (*add)(Lane const* a, Lane const* b, int count, std::uint32_t const* words, Lane* out);
  bool draws;  ///< add() looks at a word for each value
  /// The same for whole random tiles, or null; returns at least the largest magnitude that it saw.
  std::uint32_t (*add_tiles)(Lane const* a, Lane const* b, random::stream const& s, std::uint64_t tile,
                             int tiles, Lane* out, std::size_t ahead);
  bool checked =
      false;  ///< whether the result is in range has to be looked at: the operator is not the library's
};

/// What levels with a rounding add to a composition. Policies come back as they were given: see policies.
template <class Lane>
struct coding_leaves {
  void (*encode)(void const* levels, void const* rounding, encoded_run const* runs, int count,
                 std::uint32_t const* words, Lane* out);
  /// Whole random tiles, for each type of values; null where there is no loop for this machine.
  /// @param gain  one for every 64 values
  /// @param out   codes as bytes, or as a wire of four bits has them
  using tiles = void (*)(void const* levels, void const* rounding, void const* values, float const* gain,
                         random::stream const& s, std::uint64_t tile, int count, void* out, int origin,
                         std::size_t ahead);
  tiles bytes_of_tiles[4], nibbles_of_tiles[4];  ///< by dtype
};

/// What levels add.
template <class Lane>
struct level_leaves {
  using decoder = std::uint32_t (*)(void const* levels, Lane const* codes, decoded_run const* runs, int count,
                                    std::uint32_t limit, float* out);
  /// The values of codes, written or added.
  decoder write_values, add_values;
  /// The same on the scale of a float32 vector. They return what kernel::decode() does.
  decoder decode, decode_and_add;
};

/// What a wire format adds.
template <class Lane>
struct wire_leaves {
  void (*pack)(void const* wire, Lane const* codes, int count, std::byte* out, bool zero_free);
  bool (*unpack)(void const* wire, std::byte const* in, int count, Lane* codes, bool zero_free);
  std::uint64_t (*bytes)(void const* wire,
                         std::uint64_t count);  ///< null where codes have no gaps between them
  bool as_lanes;                                ///< codes travel as lanes: no pack() and no unpack()
};

/// What codes are asked for, whatever their levels.
template <class Lane>
struct lane_leaves {
  /// Whether codes are at most @p limit, and, where @p zero_free, not zero.
  bool (*in_range)(Lane const* codes, int count, std::uint32_t limit, bool zero_free);
};

/// What a code of blocks adds. See wire/block_code.hpp.
template <class Lane>
struct code_leaves {
  std::size_t (*encode)(void const* code, void const* table, Lane const* codes, int count, std::byte* out,
                        std::size_t room);
  bool (*decode)(void const* code, void const* table, std::byte const* in, std::size_t size, int count,
                 std::uint32_t max_code, Lane* codes);
};

/// What bodies do to values, whatever the operator.
struct value_leaves {
  /// kernel::load(): values times 2^exponent as float32, in @p buffer or where they are.
  float const* (*load)(const_vector x, std::uint64_t first, int count, int exponent, float* buffer);
  /// kernel::store(): values times a scale, written or added. They return whether one was out of range.
  bool (*store)(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                float const* values);
  bool (*store_sum)(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                    float const* values);
  /// out = values * gain.
  void (*scale)(float const* values, int count, float gain, float* out);
  /// sum += values.
  void (*add)(float const* values, int count, float* sum);
  /// kernel::fill_words() of tiles from one on.
  void (*words)(random::stream const& s, std::uint64_t tile, int count, std::uint32_t* out);
  /// kernel::places().
  void (*places)(float const* values, int count, float gain, float floor, std::uint32_t base,
                 std::uint32_t* out);
  /// kernel::block_statistic().
  norm::statistic (*statistic)(const_vector x, std::uint64_t first, int count, std::uint32_t q);
  /// The scales of the buckets of host_values values by their maximum norm, and the gains, where there is a loop for them.
  /// See kernel/isa/scales_avx512.hpp.
  /// @returns false where nothing was written
  bool (*scales)(const_vector x, std::uint64_t first, std::uint64_t bucket, float extent, void* words,
                 float* gain);
};

}  // namespace GLOBALQ_ABI::kernel
