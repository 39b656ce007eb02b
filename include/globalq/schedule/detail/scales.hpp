// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: combines the statistics of all workers to scales: the exchange of bucket norms.

#include "../../core/codec.hpp"
#include "../../core/scale_word.hpp"
#include "../../norm/statistic.hpp"
#include "../concept.hpp"

namespace GLOBALQ_ABI::detail {

/// (sum_i a_i^p)^(1/p) over n workers, added in rank order in double; the same bits wherever it is computed.
/// @param a  a(i): norm of worker i, finite and not negative; called twice per worker
GLOBALQ_ANY_FUNCTION
template <class Norms>
GLOBALQ_FUNCTION double combine_norms(int n, Norms const& a, std::uint32_t p) {
  double top = 0;
  for (int i = 0; i < n; ++i) {
    double const v = a(i);
    top = top < v ? v : top;
  }
  if (p == infinity || top == 0) return top;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    double const share = rounded(a(i) / rounded(top));  // otherwise -ffast-math multiplies by a reciprocal
    sum = rounded(sum + norm::rounded_power(share, p));
  }
  return rounded(norm::root(sum, p) * top);  // sum is in [1, n]
}
inline double combine_norms(std::span<double const> a, std::uint32_t p) {
  return combine_norms(
      static_cast<int>(a.size()), [&](int i) { return a[static_cast<std::size_t>(i)]; }, p);
}

/// Per-bucket operations while workers agree on scales.
struct write_bucket_scales {
  double const* bucket_scales;
  std::byte* scales;
  dtype type;
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const { write_scale(scales, b, type, bucket_scales[b]); }
};
struct read_bucket_scales {
  std::byte const* scales;
  dtype type;
  double* bucket_scales;
  std::uint64_t own_first, own_end;  ///< buckets that are already known
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    if (b < own_first || b >= own_end) bucket_scales[b] = read_scale(scales, b, type);
  }
};
struct combine_bucket_scales {
  std::byte const* theirs;  ///< norms of each worker for the buckets of this one
  std::uint64_t count;
  int rank, workers;
  std::uint32_t p;
  dtype type;
  double* bucket_scales;  ///< in: own; out: combined
  std::byte* scales;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    double const own = bucket_scales[i];
    auto const norm_of = [&](int w) {
      return w == rank ? own : read_scale(theirs, static_cast<std::uint64_t>(w) * count + i, type);
    };
    bucket_scales[i] = representable(combine_norms(workers, norm_of, p), type);
    write_scale(scales, i, type, bucket_scales[i]);
  }
};

/// Executes items in the calling thread.
struct serial_items {
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    for (std::uint64_t i = 0; i < count; ++i) f(i);
  }
};

/// Bytes per bucket in an exchange: of a worker's contribution, and of the result.
struct exchange_widths {
  std::size_t known = 0, follows = 0;
};

/// Combines per-bucket data of all workers; every worker receives the same result.
///
/// Each worker owns a range of buckets: it receives all contributions for that range, combines them, and sends the
/// result to all. Two steps; (n-1)/n of the bytes of both widths are sent.
/// @param write    write(to): writes this worker's contribution for all buckets
/// @param combine  combine(theirs, mine, to): computes the result for buckets @p mine from the other workers'
///                 contributions, in rank order; this worker's slot is not filled
/// @param read     read(all, mine): reads the result for all buckets except @p mine
template <Transport T, class Write, class Combine, class Read>
void exchange_by_owners(T& t, std::uint64_t buckets, exchange_widths width, frame_pool& frames, bool counting,
                        Write const& write, Combine const& combine, Read const& read) {
  int const n = t.size(), r = t.rank();
  partition const cut(buckets, n, 1, 0);
  segment const mine = cut.part(r);
  std::size_t const mine_bytes = mine.count * width.known;
  auto const theirs = frames.get(0, mine_bytes * static_cast<std::size_t>(n));
  auto const known = frames.get(1, buckets * width.known), follows = frames.get(2, buckets * width.follows);
  auto const part_of = [&](std::span<std::byte> all, std::size_t each, int q) {
    segment const s = cut.part(q);
    return counting ? std::span<std::byte>(all.data(), s.count * each)
                    : all.subspan(s.first * each, s.count * each);
  };
  auto const from = [&](int q) {
    return counting ? std::span<std::byte>(theirs.data(), mine_bytes)
                    : theirs.subspan(static_cast<std::size_t>(q) * mine_bytes, mine_bytes);
  };
  schedule::detail::transfers<T> under_way;
  for (int q = 0; q < n; ++q)
    if (q != r) under_way.recv(t, q, from(q));
  if (!counting) write(known.data());
  for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, part_of(known, width.known, (r + k) % n));
  under_way.wait_all(t);
  if (!counting) combine(theirs.data(), mine, part_of(follows, width.follows, r).data());
  for (int q = 0; q < n; ++q)
    if (q != r) under_way.recv(t, q, part_of(follows, width.follows, q));
  for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, part_of(follows, width.follows, r));
  under_way.wait_all(t);
  if (!counting) read(follows.data(), mine);
}

/// As above over a transport that only counts.
template <Transport T>
void count_exchange(T& t, std::uint64_t buckets, exchange_widths width, frame_pool& frames) {
  auto const nothing = [](auto...) {};
  if (t.size() > 1) exchange_by_owners(t, buckets, width, frames, true, nothing, nothing, nothing);
}

constexpr exchange_widths widths_of_scales(dtype type) { return {scale_bytes(type), scale_bytes(type)}; }

/// Replaces the own norms of all buckets by the scales of all workers, which owners combine in rank order.
/// @param on     executes items in the memory of bucket_scales and frames
/// @param bucket_scales  in: own norms, representable; out: scales
template <Transport T, class Executor = serial_items>
void agree_on_scales(T& t, std::span<double> bucket_scales, std::uint32_t p, dtype type, frame_pool& frames,
                     Executor const& on = {}) {
  int const n = t.size(), r = t.rank();
  if (n == 1) return;
  exchange_by_owners(
      t, bucket_scales.size(), widths_of_scales(type), frames, false,
      [&](std::byte* to) {
        on.items(bucket_scales.size(), write_bucket_scales{bucket_scales.data(), to, type});
      },
      [&](std::byte const* theirs, segment mine, std::byte* to) {
        on.items(mine.count, combine_bucket_scales{theirs, mine.count, r, n, p, type,
                                                   bucket_scales.data() + mine.first, to});
      },
      [&](std::byte const* all, segment mine) {
        on.items(bucket_scales.size(),
                 read_bucket_scales{all, type, bucket_scales.data(), mine.first, mine.first + mine.count});
      });
}

}  // namespace GLOBALQ_ABI::detail
