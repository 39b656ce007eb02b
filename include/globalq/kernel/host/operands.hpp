// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the steps of the loop bodies for a host thread's piece: 1,024 values, in L1.
///
/// Policies appear only through their leaves, so the code is compiled once per code type. Functions called for each
/// bucket are inlined; otherwise buckets of 32 values would take twice as long.

#include "../../core/prefetch.hpp"
#include "../executor.hpp"
#include "../operands.hpp"
#include "leaves.hpp"

#include <cstring>

namespace GLOBALQ_ABI::kernel::host {

/// The part of a segment that a host thread processes at a time.
using piece = row;

/// The common operands of all bodies of a host.
/// @tparam Int  of the wire format
template <class Int>
struct operands : segment_operands<any_rounding> {
  policies<Int> by;

  operands() = default;

  /// @param held  must outlive this object
  explicit operands(any_policies<Int> const& held) : by(held.by) {
    rounding = held.rounding;
    extent = held.extent;
    max_code = held.max_code;
  }

  GLOBALQ_ALWAYS_INLINE piece piece_of(std::uint64_t index) const {
    return row_of<host_lanes>(index, 0, 0, this->count);
  }

  /// Bytes of the codes of @p n values on the wire.
  GLOBALQ_ALWAYS_INLINE std::uint64_t bytes(std::uint64_t n) const {
    if (by.leaf->bytes != nullptr) return by.leaf->bytes(by.wire, n);
    return (n * by.bits + 7) / 8;
  }

  bool as_integers() const { return by.leaf->as_integers; }

  /// Whether codes can be accessed in place. Frames of users may begin at any byte.
  static bool lies_as_integers(std::byte const* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignof(Int) == 0;
  }

  /// Reads the codes of a piece of a frame, unchecked: in place if codes travel as integers, otherwise into the buffer.
  GLOBALQ_ALWAYS_INLINE Int const* read(source_view const& s, piece const p, Int* buffer) const {
    std::byte const* const in = s.codes + bytes(p.first);
    if (!as_integers()) {
      if (by.leaf->unpack(by.wire, in, p.count, buffer, zero_free)) report(bad_code);
      return buffer;
    }
    if (lies_as_integers(in)) return reinterpret_cast<Int const*>(in);
    std::memcpy(buffer, in, static_cast<std::size_t>(p.count) * sizeof(Int));
    return buffer;
  }

  /// Reports codes that are out of range.
  GLOBALQ_ALWAYS_INLINE void check(Int const* codes, piece const p, source_view const& s) const {
    if (!verified && !by.leaf->in_range(codes, p.count, limit_of(s), zero_free)) report(bad_code);
  }

  /// read() and check().
  GLOBALQ_ALWAYS_INLINE Int const* read_checked(source_view const& s, piece const p, Int* buffer) const {
    Int const* const codes = read(s, p, buffer);
    check(codes, p, s);
    return codes;
  }

  /// Where to write the codes of a piece: into the frame if codes travel as integers, otherwise into the buffer.
  GLOBALQ_ALWAYS_INLINE Int* target(std::byte* out, piece const p, Int* buffer) const {
    return as_integers() && lies_as_integers(out) ? reinterpret_cast<Int*>(out) + p.first : buffer;
  }

  /// Writes the codes of a piece into a frame, unless they are already there (see target()).
  GLOBALQ_ALWAYS_INLINE void write(Int const* codes, piece const p, std::byte* out) const {
    if (p.count == 0) return;
    std::byte* const to = out + bytes(p.first);
    if (static_cast<void const*>(codes) == to) return;
    if (as_integers())
      std::memcpy(to, codes, static_cast<std::size_t>(p.count) * sizeof(Int));
    else
      by.leaf->pack(by.wire, codes, p.count, to, zero_free);
  }

  /// Prefetches the input of host_values values.
  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    prefetch_own(index);
    prefetch_sources(index);
  }
  GLOBALQ_ALWAYS_INLINE void prefetch_own(std::uint64_t index) const {
    std::size_t const width = size_of(x.type);
    if (own)
      globalq::prefetch(static_cast<std::byte const*>(x.data) + (first + index * host_values) * width,
                        host_values * width);
  }
  GLOBALQ_ALWAYS_INLINE void prefetch_sources(std::uint64_t index) const {
    for (int k = 0; k < sources.count; ++k)
      globalq::prefetch(sources[k].codes + bytes(index * host_values), bytes(host_values));
  }
  /// Prefetches the part of a frame that host_values codes will be written to.
  GLOBALQ_ALWAYS_INLINE void prefetch_target(std::byte* out, std::uint64_t index) const {
    globalq::prefetch<true>(out + bytes(index * host_values), bytes(host_values));
  }

  /// Calls use(runs, number) for all runs of a piece that lie in one bucket, up to 32 at a time.
  /// @tparam Run  encoded_run or decoded_run
  /// @param fill  fill(bucket, run) sets the members other than `at` and `count` in place. (Returning a run would be
  ///              slower: it would be written in parts and read as a whole, which stalls.)
  template <class Run, class Fill, class Use>
  GLOBALQ_ALWAYS_INLINE void each_run(piece const p, Fill const& fill, Use const& use) const {
    Run runs[32];
    int n = 0;
    for_each_run(first + p.first, p.count, bucket, [&](std::uint64_t b, int at, int m) {
      Run& r = runs[n++];
      r.at = at;
      r.count = m;
      fill(b, r);
      if (n < 32 && at + m < p.count) return;
      use(runs, n);
      n = 0;
    });
  }

  /// Own values [at, at + n) times 2^exponent, as float32.
  GLOBALQ_ALWAYS_INLINE float const* load(std::uint64_t at, int n, int exponent, float* buffer) const {
    if (x.type == dtype::float32 && exponent == 0) return static_cast<float const*>(x.data) + at;
    return by.leaf->load(x, at, n, exponent, buffer);
  }

  /// The drawn word shared by a bucket, or 0 if the rounding does not use it.
  GLOBALQ_ALWAYS_INLINE std::uint32_t drawn_word(std::uint64_t b, bool again) const {
    return rounding.constant ? 0 : shared_word(b, rank, again);
  }

  /// Encodes this worker's own values in a piece.
  /// @param words  one per value, if values have words of their own
  void encode_own(piece const p, std::uint32_t const* words, Int* codes) const {
    float buffer[piece_values];
    shared_tiles const shared{{seed, step, rounding.cohort, random::purpose::share},
                              (first + p.first) / tile_values};
    each_run<encoded_run>(
        p,
        [&](std::uint64_t b, encoded_run& r) {
          input_scale const s = scale_of(b);
          r.values =
              load(first + p.first + static_cast<std::uint64_t>(r.at), r.count, s.exponent, buffer + r.at);
          r.gain = s.gain;
          r.drawn = drawn_word(b, false);
        },
        [&](encoded_run const* runs, int n) {
          encode_runs(runs, n, words, rounding.shares ? &shared : nullptr, codes);
        });
  }
  GLOBALQ_ALWAYS_INLINE void encode_runs(encoded_run const* runs, int n, std::uint32_t const* words,
                                         shared_tiles const* shared, Int* codes) const {
    by.leaf->encode(by.levels, rounding.policy, runs, n, words, shared, codes);
  }

  /// Draws a word for each value of a piece, if the rounding uses one per value.
  GLOBALQ_ALWAYS_INLINE void fill_words(std::uint64_t index, piece const p, random::purpose use,
                                        std::uint32_t* words) const {
    if (rounding.word_per_coordinate) by.leaf->words(stream(rank, use), tile_of(index), p.count, words);
  }

  /// The first random tile of a piece.
  GLOBALQ_ALWAYS_INLINE std::uint64_t tile_of(std::uint64_t index) const {
    return first / tile_values + index * share_tiles<host_lanes>;
  }

  // ---- whole random tiles, if this instruction set has a loop for them

  /// Whether tiles_to() supports a piece: whole random tiles, with scales that change only at multiples of 64 values.
  bool has_tiles(piece const p) const { return p.count % tile_values == 0 && encodes_tiles(); }
  bool encodes_tiles() const {
    return by.has_tiles && by.leaf->bytes_of_tiles[static_cast<int>(dtype::float32)] != nullptr &&
           bucket % 64 == 0;
  }
  /// Whether the codes of whole tiles can be written packed, four bits each.
  bool writes_nibbles() const {
    return encodes_tiles() && bucket % 128 == 0 && by.bits == 4 &&
           by.leaf->nibbles_of_tiles[static_cast<int>(dtype::float32)] != nullptr;
  }

  /// Sets the gain of values [at, at + count); there is one gain per 64 values.
  static void set_gain(float* gain, int at, int count, float value) {
    for (int k = at / 64; k < (at + count) / 64; ++k) gain[k] = value;
  }

  /// The output of encoding tiles.
  struct tile_target {
    void* out;
    bool nibbles;  ///< true: packed, in a frame; false: integers
  };
  tile_target nibbles(piece const p, std::byte* out) const { return {out + bytes(p.first), true}; }

  /// Encodes whole tiles.
  /// @param values  of a type other than float64
  void tiles_to(piece const p, void const* values, dtype type, float const* gain, random::purpose use,
                std::size_t asked_ahead, tile_target to) const {
    auto const leaf =
        (to.nibbles ? by.leaf->nibbles_of_tiles : by.leaf->bytes_of_tiles)[static_cast<int>(type)];
    leaf(by.levels, values, gain, stream(rank, use), (first + p.first) / tile_values, p.count / tile_values,
         to.out, zero_free ? 1 : 0, asked_ahead);
  }

  /// The address of the own values of a piece.
  void const* stored(piece const p) const {
    return static_cast<std::byte const*>(x.data) + (first + p.first) * size_of(x.type);
  }

  /// Whether own values can be encoded by such a loop: it draws words by itself, so workers cannot share any.
  bool encodes_own_tiles() const { return !rounding.shares && encodes_tiles(); }

  /// encode_own() of whole tiles. Returns false if tiles are not supported.
  bool encode_own_tiles(piece const p, tile_target to) const {
    if (rounding.shares || !has_tiles(p)) return false;
    float buffer[piece_values], gain[piece_values / 64];
    bool scaled = false;
    for_each_run(first + p.first, p.count, bucket, [&](std::uint64_t b, int at, int m) {
      input_scale const s = scale_of(b);
      scaled = scaled || s.exponent != 0;
      set_gain(gain, at, m, s.gain);
    });
    if (!scaled && x.type != dtype::float64) {
      tiles_to(p, stored(p), x.type, gain, random::purpose::encode, ahead(), to);
      return true;
    }
    for_each_run(first + p.first, p.count, bucket, [&](std::uint64_t b, int at, int m) {
      std::uint64_t const from = first + p.first + static_cast<std::uint64_t>(at);
      float const* const part = load(from, m, scale_of(b).exponent, buffer + at);
      if (part != buffer + at)
        for (int i = 0; i < m; ++i) buffer[at + i] = part[i];
    });
    tiles_to(p, buffer, dtype::float32, gain, random::purpose::encode, 0, to);
    return true;
  }

  /// Computes the maximum norms of the buckets of host_values values, and encodes the values, if this instruction set
  /// has loops for both. Writes the scales and codes of a frame. Returns false if nothing was written.
  bool encode_own_measured(piece const p, std::byte* scales, std::byte* out) const {
    if (rounding.shares || !has_tiles(p) || p.count != piece_values || bucket % 128 != 0) return false;
    std::byte* const words = scales + 4 * scale_index((first + p.first) / bucket);
    float gain[piece_values / 64];
    if (!by.leaf->scales(x, first + p.first, bucket, extent, words, gain)) return false;
    if (writes_nibbles()) {
      tiles_to(p, stored(p), x.type, gain, random::purpose::encode, ahead(), nibbles(p, out));
      return true;
    }
    Int buffer[piece_values];
    Int* const codes = target(out, p, buffer);
    tiles_to(p, stored(p), x.type, gain, random::purpose::encode, ahead(), {codes, false});
    write(codes, p, out);
    return true;
  }

  /// The prefetch distance, in values, of loops that prefetch by themselves.
  std::size_t ahead() const { return count < prefetch_from ? 0 : values_ahead; }

  // ---- values

  /// Computes the sum of own values (unencoded) and decoded sources in a piece. There must be at least one of them.
  ///
  /// The sum is on the scale of segment_operands::sum_scale(). Several frames are added in float32 in the given order.
  /// @param multiply_terms  false: keep a single frame in units of its own scale
  void accumulate(piece const p, bool multiply_terms, float* sum) const {
    if (own) {
      float buffer[piece_values];
      for_each_run(first + p.first, p.count, bucket, [&](std::uint64_t b, int at, int m) {
        input_scale const s = sum_scale(b);
        float const* const z =
            load(first + p.first + static_cast<std::uint64_t>(at), m, s.exponent, buffer + at);
        by.leaf->scale(z, m, s.gain, sum + at);
      });
    }
    Int buffer[piece_values];
    for (int k = 0; k < sources.count; ++k) {
      source_view const s = sources[k];
      Int const* const codes = read_checked(s, p, buffer);
      auto const leaf = k == 0 && !own ? by.leaf->write_values : by.leaf->add_values;
      each_run<decoded_run>(
          p,
          [&](std::uint64_t b, decoded_run& r) {
            r.shift = shift_of(s, b);
            r.factor = factor_of(s, b, multiply_terms);
          },
          [&](decoded_run const* runs, int n) { leaf(by.levels, codes, runs, n, 0, sum); });
    }
  }
};

}  // namespace GLOBALQ_ABI::kernel::host
