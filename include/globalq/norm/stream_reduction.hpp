// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the statistics of buckets by kernels on a stream; the bits of norm/reduction.hpp.
///
/// Four threads share a block: value i of a block belongs to partial sum i % 16, and thread t keeps sums 4 t to 4 t + 3.
/// So each sum is added in the order of the values, and four threads read 64 bytes that lie side by side.

#include "statistic.hpp"

#include <algorithm>

namespace globalq::norm {

namespace detail {

/// Threads of a block, and the partial sums of each.
inline constexpr int block_threads = 4;
inline constexpr int thread_sums = 16 / block_threads;

/// The part of a block that a thread treats: rows of thread_sums values, 16 apart.
template <class F>
GLOBALQ_FUNCTION void for_each_row(int count, int thread, F const& f) {
  for (int i = thread * thread_sums; i < count; i += 16)
    f(i, count - i < thread_sums ? count - i : thread_sums);
}

/// What a thread found in its part of a block.
struct part {
  std::uint64_t max_bits = 0;
  double sums[thread_sums] = {};
};

template <class Word, class Widen>
GLOBALQ_FUNCTION std::uint64_t part_max(void const* data, std::uint64_t first, int count, int thread,
                                        Word magnitude, Widen const& widen) {
  Word const* const x = static_cast<Word const*>(data) + first;
  Word top = 0;
  for_each_row(count, thread, [&](int at, int m) {
    for (int k = 0; k < m; ++k) {
      Word const v = static_cast<Word>(x[at + k] & magnitude);
      top = top < v ? v : top;
    }
  });
  return widen(top);
}

/// max_bits() of a thread's part of a block.
GLOBALQ_FUNCTION std::uint64_t part_max_bits(const_vector x, std::uint64_t first, int count, int thread) {
  switch (x.type) {
    case dtype::float64:
      return part_max(x.data, first, count, thread, double_magnitude,
                      [](std::uint64_t m) { return m > double_infinity ? double_nan : m; });
    case dtype::float16:
      return part_max(x.data, first, count, thread, std::uint16_t{0x7fff},
                      [](std::uint16_t m) { return as_double_bits(float16::widen(m)); });
    case dtype::bfloat16:
      return part_max(x.data, first, count, thread, std::uint16_t{0x7fff},
                      [](std::uint16_t m) { return as_double_bits(bfloat16::widen(m)); });
    default:
      return part_max(x.data, first, count, thread, float_magnitude,
                      [](std::uint32_t m) { return as_double_bits(float_of(m)); });
  }
}

/// add_powers() of a thread's part of a block, whose largest magnitude has exponent e (0: values as they are).
GLOBALQ_FUNCTION void part_powers(const_vector x, std::uint64_t first, int count, int thread, std::uint32_t q,
                                  int e, double* sums) {
  int const loaded = load_exponent(x.type, e), missing = -e - loaded;
  float const factor = power_of_two_float(missing > 127 ? 127 : missing);
  for_each_row(count, thread, [&](int at, int m) {
    float buffer[thread_sums];
    float const* const z = load<thread_sums>(x, first + static_cast<std::uint64_t>(at), m, loaded, buffer);
    for (int k = 0; k < m; ++k) {
      float const v = missing != 0 ? multiply(z[k], factor) : z[k];
      add_powers(&v, 1, q, sums + k);
    }
  });
}

}  // namespace detail

/// Teams of threads, each with some blocks.
template <class Space>
struct block_statistics {
  using team_policy = Kokkos::TeamPolicy<Space>;
  using member = typename team_policy::member_type;

  /// Blocks of a team.
  static constexpr int group = 32;
  static constexpr int parts = group * detail::block_threads;

  const_vector x;
  statistic* result;   ///< one a block
  std::uint64_t* top;  ///< raised to the largest max_bits
  std::uint64_t count, width, blocks_each, blocks;
  std::uint32_t q;

  static std::size_t scratch_bytes() { return parts * sizeof(detail::part) + 64; }

  KOKKOS_FUNCTION void operator()(member const& team) const {
    auto* const found = static_cast<detail::part*>(
        team.team_shmem().get_shmem_aligned(parts * sizeof(detail::part), alignof(detail::part)));
    std::uint64_t const from = static_cast<std::uint64_t>(team.league_rank()) * group;
    bool const unscaled = x.type != dtype::float64 && q <= max_unscaled_order;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, parts), [&](int k) {
      detail::part p;
      block const b = block_of(from + static_cast<std::uint64_t>(k / detail::block_threads));
      int const thread = k % detail::block_threads;
      p.max_bits = detail::part_max_bits(x, b.first, b.count, thread);
      if (unscaled) detail::part_powers(x, b.first, b.count, thread, q, 0, p.sums);
      found[k] = p;
    });
    team.team_barrier();
    if (!unscaled && q != infinity) {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, parts), [&](int k) {
        std::uint64_t const most = max_of(found + k / detail::block_threads * detail::block_threads);
        block const b = block_of(from + static_cast<std::uint64_t>(k / detail::block_threads));
        if (most == 0 || most >= double_infinity) return;
        detail::part_powers(x, b.first, b.count, k % detail::block_threads, q, exponent_of(double_of(most)),
                            found[k].sums);
      });
      team.team_barrier();
    }
    std::uint64_t team_top = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, group),
        [&](int g, std::uint64_t& largest) {
          std::uint64_t const i = from + static_cast<std::uint64_t>(g);
          if (i >= blocks) return;
          statistic const s = put_together(found + g * detail::block_threads, unscaled);
          result[i] = s;
          largest = largest < s.max_bits ? s.max_bits : largest;
        },
        Kokkos::Max<std::uint64_t>(team_top));
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      if (top != nullptr && team_top != 0) Kokkos::atomic_max(top, team_top);
    });
  }

 private:
  struct block {
    std::uint64_t first;
    int count;
  };
  KOKKOS_FUNCTION block block_of(std::uint64_t i) const {
    if (i >= blocks) return {0, 0};
    std::uint64_t const start = i / blocks_each * width;
    std::uint64_t const first = start + i % blocks_each * block_values;
    std::uint64_t last = start + width < first + block_values ? start + width : first + block_values;
    last = last < count ? last : count;
    return {first, first < last ? static_cast<int>(last - first) : 0};
  }
  KOKKOS_FUNCTION static std::uint64_t max_of(detail::part const* p) {
    std::uint64_t most = 0;
    for (int t = 0; t < detail::block_threads; ++t) most = most < p[t].max_bits ? p[t].max_bits : most;
    return most;
  }
  KOKKOS_FUNCTION statistic put_together(detail::part const* p, bool unscaled) const {
    statistic s;
    s.max_bits = max_of(p);
    if (q == infinity || !s.finite() || s.max_bits == 0) return s;
    double sums[16];
    for (int j = 0; j < 16; ++j) sums[j] = p[j / detail::thread_sums].sums[j % detail::thread_sums];
    s.sum = add_up(sums);
    if (unscaled) s.sum *= power_of_two(-s.exponent() * static_cast<int>(q));
    return s;
  }
};

/// Some steps of the tree over the blocks of each bucket.
struct merge_blocks {
  /// Parts that an item merges.
  static constexpr std::uint64_t fan = 64;

  statistic* parts;
  std::uint64_t blocks_each, stride, items_each;
  std::uint32_t q;
  statistic* result;  ///< of a bucket, where this is the last step; else null

  GLOBALQ_FUNCTION void operator()(std::uint64_t item) const {
    std::uint64_t const bucket = item / items_each, start = item % items_each * fan * stride;
    statistic* const tree = parts + bucket * blocks_each;
    std::uint64_t const end = start + fan * stride < blocks_each ? start + fan * stride : blocks_each;
    for (std::uint64_t s = stride; s < fan * stride; s *= 2)
      for (std::uint64_t i = start; i + s < end; i += 2 * s) tree[i] = merge(tree[i], tree[i + s], q);
    if (result != nullptr) result[bucket] = tree[0];
  }
};

/// Parts that statistics of these buckets need besides the result.
inline std::uint64_t stream_parts(std::uint64_t count, std::uint64_t bucket) {
  if (count == 0) return 0;
  std::uint64_t const width = bucket == 0 ? count : std::min(bucket, count);
  std::uint64_t const each = divide_up<std::uint64_t>(width, block_values);
  return each == 1 ? 0 : divide_up(count, width) * each;
}

/// Puts the statistics of consecutive buckets of x on the stream.
///
/// @param on      kernel::device_executor
/// @param parts   stream_parts(count, bucket) statistics
/// @param result  one a bucket
/// @param top     raised to the largest max_bits of all, or null
/// @complexity    one pass over x for q = infinity, and for q <= 6 unless x is float64; else two
/// @determinism   the bits of bucket_statistics()
template <class Executor>
void enqueue_statistics(Executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
                        std::uint32_t q, statistic* parts, statistic* result, std::uint64_t* top) {
  using space = typename Executor::space;
  if (count == 0) return;
  std::uint64_t const width = bucket == 0 ? count : std::min(bucket, count);
  std::uint64_t const buckets = divide_up(count, width);
  std::uint64_t const each = divide_up<std::uint64_t>(width, block_values);
  using body = block_statistics<space>;
  body const f{x, each == 1 ? result : parts, top, count, width, each, buckets * each, q};
  using policy = typename body::team_policy;
  auto const league = static_cast<int>(divide_up<std::uint64_t>(f.blocks, body::group));
  constexpr bool one_thread =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename space::memory_space>::accessible;
  Kokkos::parallel_for("globalq",
                       policy(on.instance(), league, one_thread ? 1 : body::parts)
                           .set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(body::scratch_bytes()))),
                       f);
  if (each == 1) return;
  for (std::uint64_t stride = 1; stride < each; stride *= merge_blocks::fan) {
    std::uint64_t const items = divide_up(each, stride * merge_blocks::fan);
    on.items(buckets * items, merge_blocks{parts, each, stride, items, q, items == 1 ? result : nullptr});
  }
}

}  // namespace globalq::norm
