// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop bodies of a host that write frames (adding codes, or adding values and encoding again) or
/// check them. Each reads every input once and writes its output once; intermediate results stay in L1.

#include "operands.hpp"

namespace GLOBALQ_ABI::kernel::host {

/// Adds own codes and the codes of the sources by a reduce operator on codes. Without sources it only encodes.
template <class Int>
struct add_codes {
  operands<Int> o;
  std::byte* out;
  reduce_leaves<Int> const* op = nullptr;  ///< null if there is nothing to add

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    bool const in_place = o.as_integers(), encodes = o.encodes_own_tiles() && o.x.type != dtype::float64,
               adds = op != nullptr && op->add_tiles != nullptr && in_place,
               writes = in_place || (o.sources.count == 0 && o.writes_nibbles());
    if (!encodes) o.prefetch_own(index);
    if (!adds) o.prefetch_sources(index);
    if (!(writes && o.own && encodes) && !(adds && o.sources.count > 0)) o.prefetch_target(out, index);
  }

  void work(std::uint64_t index) const {
    piece const p = o.piece_of(index);
    Int buffer[piece_values];
    Int const* sum = nullptr;
    if (o.own) {
      if (o.sources.count == 0 && o.writes_nibbles() && o.encode_own_tiles(p, o.nibbles(p, out))) return;
      Int* const codes = o.target(out, p, buffer);
      if (!o.encode_own_tiles(p, {codes, false})) {
        std::uint32_t words[piece_values];
        o.fill_words(index, p, random::purpose::encode, words);
        o.encode_own(p, words, codes);
      }
      sum = codes;
    }
    for (int k = 0; k < o.sources.count; ++k) {
      if (sum == nullptr && (op->add_tiles == nullptr || o.sources.count == 1 || p.count % tile_values != 0))
        sum = o.read_checked(o.sources[k], p, buffer);
      else
        sum = add(index, p, k, sum, buffer);
    }
    if (op != nullptr && op->checked && !o.by.leaf->in_range(sum, p.count, o.max_code, o.zero_free))
      o.report(bad_sum);
    o.write(sum, p, out);
  }

 private:
  /// Adds the codes of source k to the sum.
  /// @param sum  null: there is no sum yet; unless unpacked, the first source is then checked together with the second
  Int const* add(std::uint64_t index, piece const p, int k, Int const* sum, Int* buffer) const {
    source_view const s = o.sources[k];
    if (sum == nullptr) {
      sum = o.read(s, p, buffer);
      if (sum == buffer) o.check(sum, p, s);  // because the buffer will be overwritten
      return sum;
    }
    Int other[piece_values];
    Int const* const theirs = o.read(s, p, other);
    Int* const result = o.target(out, p, buffer);
    random::stream const words_of = o.stream(s.worker, random::purpose::reduce);
    if (op->add_tiles != nullptr && p.count % tile_values == 0) {
      std::uint32_t const bits = op->add_tiles(sum, theirs, words_of, o.tile_of(index), p.count / tile_values,
                                               result, o.as_integers() ? o.ahead() : 0);
      if (bits > o.limit_of(s)) {  // a code may be out of range
        o.check(theirs, p, s);
        if (k == 1 && !o.own) o.check(o.read(o.sources[0], p, other), p, o.sources[0]);
      }
      return result;
    }
    o.check(theirs, p, s);
    std::uint32_t words[piece_values];
    if (op->draws) o.by.leaf->words(words_of, o.tile_of(index), p.count, words);
    op->add(sum, theirs, p.count, words, result);
    return result;
  }
};

/// Computes local norms of own values, and their codes, while the values are in L1.
template <class Int>
struct encode_measured {
  add_codes<Int> encode;
  std::byte* scales;
  double*
      bucket_scales;  ///< one per bucket of the vector; read by `encode`, unless one loop measures and encodes
  norm::order q;

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const { encode.prefetch(index); }

  /// @pre buckets_fit()
  void work(std::uint64_t index) const {
    operands<Int> const& o = encode.o;
    piece const p = o.piece_of(index);
    std::uint64_t const start = o.first + p.first;
    if (q == infinity && !q.rounds_up() && o.encode_own_measured(p, scales, encode.out)) return;
    for_each_run(start, p.count, o.bucket, [&](std::uint64_t b, int at, int m) {
      norm::statistic const s = o.by.leaf->statistic(o.x, start + static_cast<std::uint64_t>(at), m, q);
      bucket_scales[b] = s.finite() ? norm::local_scale(s, q, o.x.type, o.wide) : 0.0;
      if (!s.finite() || bits_of(bucket_scales[b]) >= double_infinity) o.report(not_finite);
      o.write_scale(scales, b, bucket_scales[b]);
    });
    encode.work(index);
  }
};

/// Adds own values and decoded sources, and encodes the sum.
template <class Int>
struct add_values {
  operands<Int> o;
  std::byte* out;
  std::byte* scales;     ///< local norms: the scales of the sum, as they travel
  bool measure = false;  ///< local norms: whether to compute and write them; only with buckets_fit()
  norm::order q{};       ///< the local norm

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    o.prefetch(index);
    o.prefetch_target(out, index);
  }

  void work(std::uint64_t index) const {
    piece const p = o.piece_of(index);
    float sum[piece_values];
    Int codes[piece_values];
    o.accumulate(p, true, sum);
    if (o.has_tiles(p)) {
      float gains[piece_values / 64];
      for_each_run(o.first + p.first, p.count, o.bucket, [&](std::uint64_t b, int at, int m) {
        o.set_gain(gains, at, m, gain_of(b, sum + at, m));
      });
      bool const as_nibbles = o.writes_nibbles();
      o.tiles_to(p, sum, dtype::float32, gains, random::purpose::requantize, 0,
                 as_nibbles ? o.nibbles(p, out) : typename operands<Int>::tile_target{codes, false});
      if (as_nibbles) return;
    } else {
      std::uint32_t words[piece_values];
      o.fill_words(index, p, random::purpose::requantize, words);
      o.template each_run<encoded_run>(
          p,
          [&](std::uint64_t b, encoded_run& r) {
            r.values = sum + r.at;
            r.gain = gain_of(b, sum + r.at, r.count);
            r.drawn = o.drawn_word(b, true);
          },
          [&](encoded_run const* runs, int n) { o.encode_runs(runs, n, words, nullptr, codes); });
    }
    o.write(codes, p, out);
  }

 private:
  /// The factor from the sums of a bucket to values that are encoded; measures their norm first if `measure` is set.
  GLOBALQ_ALWAYS_INLINE float gain_of(std::uint64_t b, float const* sum, int count) const {
    if (o.local && measure) {
      norm::statistic const s = o.by.leaf->statistic({sum, dtype::float32}, 0, count, q);
      o.write_scale(scales, b, norm::local_scale(s, q, o.x.type, -o.reference(b)));
    }
    return o.gain_of_sum(b, scales);
  }
};

/// Reads frames and reports codes out of range.
template <class Int>
struct check_codes {
  operands<Int> o;

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const { o.prefetch(index); }

  void work(std::uint64_t index) const {
    Int buffer[piece_values];
    for (int k = 0; k < o.sources.count; ++k) o.read_checked(o.sources[k], o.piece_of(index), buffer);
  }
};

}  // namespace GLOBALQ_ABI::kernel::host
