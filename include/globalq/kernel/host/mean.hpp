// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of a host at the end of a call: decodes frames, and writes the mean or adds it to a
/// vector.

#include "operands.hpp"

namespace GLOBALQ_ABI::kernel::host {

/// Decodes frames that together contain every worker, and writes the mean to a vector or adds it.
template <class Int>
struct write_mean {
  operands<Int> o;
  mutable_vector y;
  bool adds;
  store_scale whole;  ///< without buckets; if scales travel, only with a single frame
  decoded_run run{};  ///< of every piece, for one frame without buckets

  write_mean(operands<Int> const& call, mutable_vector to, bool add) : o(call), y(to), adds(add) {
    if (o.bucket != 0) return;
    if (!o.local || o.sources.count == 1) whole = o.mean_scale_of(0);
    if (o.sources.count == 1) describe(o.sources[0], 0, run);
  }

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    o.prefetch(index);
    std::size_t const width = size_of(y.type);
    auto* const to = static_cast<std::byte*>(y.data) + (o.first + index * host_values) * width;
    if (adds)
      globalq::prefetch(to, host_values * width);
    else
      globalq::prefetch<true>(to, host_values * width);
  }

  void work(std::uint64_t index) const {
    piece const p = o.piece_of(index);
    if (o.sources.count == 1 && y.type == dtype::float32)
      decode(p, adds, static_cast<float*>(y.data) + o.first + p.first);
    else if (o.sources.count == 1 && y.type != dtype::float64)
      decode_and_store(p);
    else
      add_and_store(p);
  }

 private:
  /// The factor from the accumulated values of a bucket to the mean.
  GLOBALQ_ALWAYS_INLINE store_scale scale_of(std::uint64_t b) const {
    return o.bucket == 0 && (!o.local || o.sources.count == 1) ? whole : o.mean_scale_of(b);
  }

  bool store(std::uint64_t at, int count, store_scale const& scale, float const* values) const {
    std::uint64_t const from = o.first + at;
    return (adds ? o.by.leaf->store_sum : o.by.leaf->store)(y, from, count, scale, values);
  }

  void add_and_store(piece const p) const {
    float sum[piece_values];
    o.accumulate(p, !o.one_encoded_sum(), sum);
    for_each_run(o.first + p.first, p.count, o.bucket, [&](std::uint64_t b, int at, int m) {
      if (store(p.first + static_cast<std::uint64_t>(at), m, scale_of(b), sum + at)) beyond_range(p);
    });
  }

  /// Rare: a result is infinite or NaN. When adding, NaNs become quiet NaNs with the same bits on all processors.
  [[gnu::noinline]] void beyond_range(piece const p) const {
    o.report(out_of_range);
    if (adds) make_nans_quiet(y, o.first + p.first, static_cast<std::uint64_t>(p.count));
  }

  /// add_and_store() for one frame and values of 16 bits.
  void decode_and_store(piece const p) const {
    float values[piece_values];
    decode(p, false, values);
    if (store(p.first, p.count, store_scale(1.0), values)) beyond_range(p);
  }

  /// add_and_store() for one frame and float32: decodes straight into the vector.
  /// @param out  values of the piece
  GLOBALQ_ALWAYS_INLINE void decode(piece const p, bool add, float* out) const {
    Int buffer[piece_values];
    source_view const s = o.sources[0];
    Int const* const codes = o.read_checked(s, p, buffer);
    auto const leaf = add ? o.by.leaf->decode_and_add : o.by.leaf->decode;
    std::uint32_t const limit = o.limit_of(s);
    std::uint32_t top = 0;
    auto const use = [&](decoded_run const* runs, int n) {
      std::uint32_t const most = leaf(o.by.levels, codes, runs, n, limit, out);
      top = top < most ? most : top;
    };
    if (o.bucket == 0) {
      decoded_run all = run;
      all.count = p.count;
      use(&all, 1);
    } else {
      o.template each_run<decoded_run>(
          p, [&](std::uint64_t b, decoded_run& r) { describe(s, b, r); }, use);
    }
    if (top >= float_infinity) beyond_range(p);
  }

  /// Sets the shift and factors of a bucket of one frame.
  GLOBALQ_ALWAYS_INLINE void describe(source_view const& s, std::uint64_t b, decoded_run& r) const {
    store_scale const to = scale_of(b);
    r.shift = o.shift_of(s, b);
    r.factor = o.factor_of(s, b, !o.one_encoded_sum());
    r.scale = to.factor;
    r.post = to.post;
  }
};

}  // namespace GLOBALQ_ABI::kernel::host
