// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: leaves: pointers to the loops over values in L1, and the types of their arguments.
///
/// The bodies of a host call (host/combine.hpp, host/mean.hpp) are compiled once per code type and call leaves. Only
/// leaves are compiled once per instruction set. Leaves of levels process at most host_values values, with all the runs
/// that share a scale in one call, so that short buckets do not cost a call each.

#include "../core/dtype.hpp"
#include "../norm/statistic.hpp"
#include "../random/stream.hpp"

#include <cstddef>

namespace GLOBALQ_ABI::kernel {

/// Groups that a host thread processes together: few enough for L1, enough to amortize the work done once for them.
inline constexpr int host_lanes = 64;
inline constexpr std::uint64_t host_values = 16 * host_lanes;

/// The largest number of values per call of a leaf, and the usual one.
inline constexpr int piece_values = static_cast<int>(host_values);

/// Consecutive values to encode that share a scale.
struct encoded_run {
  float const* values;
  int at, count;        ///< position within the piece
  float gain;           ///< factor from the values to the scale of the levels
  std::uint32_t drawn;  ///< the word of the bucket, if values have none of their own
};

/// Consecutive codes to decode that share a scale: (level + shift) * factor, then a store_scale.
struct decoded_run {
  int at, count;
  float shift, factor;
  float scale, post;  ///< for decode: the factors of a store_scale
};

/// The words that workers share in the tiles of a piece, for roundings that SharesWords.
struct shared_tiles {
  random::stream words;
  std::uint64_t first;  ///< tile
};

/// The leaves of a reduce operator.
template <class Int>
struct reduce_leaves {
  /// out = a + b; out may be a or b.
  void (*add)(Int const* a, Int const* b, int count, std::uint32_t const* words, Int* out);
  bool draws;  ///< add() uses one word per value
  /// The same for whole random tiles, or null; returns a bound on the magnitudes: at least the largest.
  std::uint32_t (*add_tiles)(Int const* a, Int const* b, random::stream const& s, std::uint64_t tile,
                             int tiles, Int* out, std::size_t ahead);
  bool checked = false;  ///< whether results must be range-checked, because the operator is user-defined
};

/// The leaves of levels with a rounding. A leaf casts the policy pointers back to their types: see policies.
template <class Int>
struct coding_leaves {
  /// @param shared  null: values are not own ones, or the rounding shares no words
  void (*encode)(void const* levels, void const* rounding, encoded_run const* runs, int count,
                 std::uint32_t const* words, shared_tiles const* shared, Int* out);
  /// Encodes whole random tiles, for each type of values; null if this instruction set has no such loop.
  /// @param gain  one per 64 values
  /// @param out   codes as bytes, or packed as a wire of four bits
  using tiles = void (*)(void const* levels, void const* values, float const* gain, random::stream const& s,
                         std::uint64_t tile, int count, void* out, int origin, std::size_t ahead);
  tiles bytes_of_tiles[4], nibbles_of_tiles[4];  ///< by dtype
};

/// The leaves of levels.
template <class Int>
struct level_leaves {
  using decoder = std::uint32_t (*)(void const* levels, Int const* codes, decoded_run const* runs, int count,
                                    std::uint32_t limit, float* out);
  /// Decodes codes, and writes or adds their values.
  decoder write_values, add_values;
  /// The same, scaled to a float32 vector; return values as of kernel::decode().
  decoder decode, decode_and_add;
};

/// The leaves of a wire format.
template <class Int>
struct wire_leaves {
  void (*pack)(void const* wire, Int const* codes, int count, std::byte* out, bool zero_free);
  bool (*unpack)(void const* wire, std::byte const* in, int count, Int* codes, bool zero_free);
  std::uint64_t (*bytes)(void const* wire,
                         std::uint64_t count);  ///< null if codes have no gaps between them
  bool as_integers;  ///< codes travel as integers, so pack() and unpack() are unused
};

/// The leaves of codes that do not depend on levels.
template <class Int>
struct integer_leaves {
  /// Whether all codes are at most @p limit in magnitude and, if @p zero_free, not zero.
  bool (*in_range)(Int const* codes, int count, std::uint32_t limit, bool zero_free);
};

/// The leaves of a block code. See wire/block_code.hpp.
template <class Int>
struct code_leaves {
  std::size_t (*encode)(void const* code, void const* table, Int const* codes, int count, std::byte* out,
                        std::size_t room);
  bool (*decode)(void const* code, void const* table, std::byte const* in, std::size_t size, int count,
                 std::uint32_t max_code, Int* codes);
};

/// The leaves for values, the same for all operators.
struct value_leaves {
  /// kernel::load(): values times 2^exponent as float32, in @p buffer or in place.
  float const* (*load)(const_vector x, std::uint64_t first, int count, int exponent, float* buffer);
  /// kernel::store(): writes or adds values times a scale. Both return whether a result is out of range.
  bool (*store)(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                float const* values);
  bool (*store_sum)(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                    float const* values);
  /// kernel::scale_stored(): y = (0 + values) * scale.
  bool (*scale_stored)(const_vector x, std::uint64_t first, int count, store_scale const& scale, float* y);
  /// kernel::round_halves() to bfloat16 or float16, with the words of tiles from @p tile on.
  void (*round)(dtype type, float const* values, float factor, int count, random::stream const& s,
                std::uint64_t tile, std::uint16_t* out);
  /// out = values * gain.
  void (*scale)(float const* values, int count, float gain, float* out);
  /// kernel::add_stored(): sum = own + values [first, first + count) of a vector.
  void (*add)(float const* own, const_vector x, std::uint64_t first, int count, float* sum);
  /// kernel::fill_words() for consecutive tiles, from @p tile on.
  void (*words)(random::stream const& s, std::uint64_t tile, int count, std::uint32_t* out);
  /// kernel::places().
  void (*places)(float const* values, int count, float gain, float floor, std::uint32_t base,
                 std::uint32_t* out);
  /// kernel::block_statistic().
  norm::statistic (*statistic)(const_vector x, std::uint64_t first, int count, std::uint32_t q);
  /// The scales of the buckets of host_values values by their maximum norm, and the gains, if this instruction set has
  /// a loop for it. See kernel/isa/scales_avx512.hpp.
  /// @returns false if nothing was written
  bool (*scales)(const_vector x, std::uint64_t first, std::uint64_t bucket, float extent, void* words,
                 float* gain);
  /// kernel::hadamard() of a power of two of values, and kernel::turn_signs().
  void (*hadamard)(float* x, std::uint64_t count);
  bool (*turn_signs)(random::stream const& bits, std::uint64_t first, std::uint64_t count, float factor,
                     float const* in, float* out);
};

}  // namespace GLOBALQ_ABI::kernel
