// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the statistics of buckets by kernels on a stream; the bits of kernel/reduction.hpp.
///
/// Four threads share a block: value i of a block belongs to partial sum i % 16, and thread t keeps sums 4 t to 4 t + 3.
/// So each sum is added in the order of the values, and four threads read 64 bytes that lie side by side.

#include "block_statistic.hpp"
#include "device/registers.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>

namespace GLOBALQ_ABI::norm {

namespace detail {

/// Threads of a block, and the partial sums of each.
inline constexpr int block_threads = 4;
inline constexpr int thread_sums = 16 / block_threads;

/// What a thread found in its part of a block.
struct part {
  std::uint64_t max_bits = 0;
  double sums[thread_sums] = {};
};

/// f(words) for each row of a block that a thread treats: thread_sums values, 16 apart, zeros behind the end. Several
/// rows are asked for before the first is used.
template <int Size, class F>
GLOBALQ_FUNCTION void for_each_row(void const* data, std::uint64_t first, int count, int thread, F const& f) {
  namespace device = kernel::device;
  constexpr int bytes = thread_sums * Size, words = bytes / 4, ahead = 128 / bytes;
  std::byte const* const p = device::global(static_cast<std::byte const*>(data)) + first * Size;
  int at = thread * thread_sums;
  if (device::aligned<bytes>(p)) {
    GLOBALQ_NO_UNROLL
    for (; at + 16 * (ahead - 1) + thread_sums <= count; at += 16 * ahead) {
      std::uint32_t row[ahead][words];
      GLOBALQ_UNROLL
      for (int r = 0; r < ahead; ++r) device::load_whole<bytes>(p + (at + 16 * r) * Size, row[r]);
      GLOBALQ_UNROLL
      for (int r = 0; r < ahead; ++r) f(row[r]);
    }
  }
  GLOBALQ_NO_UNROLL
  for (; at < count; at += 16) {
    std::uint32_t row[words];
    device::load_some<Size>(p + at * Size, count - at, row);
    f(row);
  }
}

/// How values of a type lie in 32-bit words.
template <dtype Type>
struct patterns_of {
  static constexpr int size = Type == dtype::float64 ? 8 : (Type == dtype::float32 ? 4 : 2);
  using magnitude = std::conditional_t<size == 8, std::uint64_t, std::uint32_t>;

  /// The bit pattern of |value i|.
  template <int W>
  GLOBALQ_FUNCTION static magnitude pattern(std::uint32_t const (&row)[W], int i) {
    if constexpr (size == 8)
      return ((static_cast<std::uint64_t>(row[2 * i + 1]) << 32) | row[2 * i]) & double_magnitude;
    else if constexpr (size == 4)
      return row[i] & float_magnitude;
    else
      return (row[i / 2] >> (16 * (i % 2))) & 0x7fffU;
  }

  /// The value with that pattern times 2^exponent, as load() has it.
  GLOBALQ_FUNCTION static float scaled(magnitude m, int exponent) {
    if constexpr (size == 8)
      return static_cast<float>(double_of(m) * globalq::power_of_two(exponent));
    else
      return multiply(exact(m), power_of_two_float(exponent));
  }

  /// max_bits() of a pattern.
  GLOBALQ_FUNCTION static std::uint64_t max_bits(magnitude m) {
    if constexpr (size == 8)
      return m > double_infinity ? double_nan : m;
    else
      return as_double_bits(exact(m));
  }

 private:
  GLOBALQ_FUNCTION static float exact(std::uint32_t m) {
    if constexpr (Type == dtype::float32)
      return float_of(m);
    else if constexpr (Type == dtype::float16)
      return float16::widen(static_cast<std::uint16_t>(m));
    else
      return bfloat16::widen(static_cast<std::uint16_t>(m));
  }
};

/// The largest magnitude of a thread's part of a block.
template <dtype Type>
GLOBALQ_FUNCTION void find_max(const_vector x, std::uint64_t first, int count, int thread, part& p) {
  using patterns = patterns_of<Type>;
  typename patterns::magnitude top = 0;
  for_each_row<patterns::size>(x.data, first, count, thread, [&](auto const& row) {
    GLOBALQ_UNROLL
    for (int k = 0; k < thread_sums; ++k) {
      auto const m = patterns::pattern(row, k);
      top = top < m ? m : top;
    }
  });
  p.max_bits = patterns::max_bits(top);
}

/// The same, and add_powers() of values that are loaded times 2^loaded and then times a factor.
template <dtype Type>
GLOBALQ_FUNCTION void find_powers(const_vector x, std::uint64_t first, int count, int thread, std::uint32_t q,
                                  int loaded, float factor, part& p) {
  using patterns = patterns_of<Type>;
  typename patterns::magnitude top = 0;
  with_power(q, [&](auto power) {
    for_each_row<patterns::size>(x.data, first, count, thread, [&](auto const& row) {
      GLOBALQ_UNROLL
      for (int k = 0; k < thread_sums; ++k) {
        auto const m = patterns::pattern(row, k);
        top = top < m ? m : top;
        p.sums[k] += power(static_cast<double>(multiply(patterns::scaled(m, loaded), factor)));
      }
    });
  });
  p.max_bits = patterns::max_bits(top);
}

/// f(integral constant of the type).
template <class F>
GLOBALQ_FUNCTION void with_type(dtype type, F const& f) {
  switch (type) {
    case dtype::float64:
      return f(std::integral_constant<dtype, dtype::float64>{});
    case dtype::float16:
      return f(std::integral_constant<dtype, dtype::float16>{});
    case dtype::bfloat16:
      return f(std::integral_constant<dtype, dtype::bfloat16>{});
    default:
      return f(std::integral_constant<dtype, dtype::float32>{});
  }
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
      detail::with_type(x.type, [&](auto type) {
        if (unscaled)
          detail::find_powers<decltype(type)::value>(x, b.first, b.count, thread, q, 0, 1.0F, p);
        else
          detail::find_max<decltype(type)::value>(x, b.first, b.count, thread, p);
      });
      found[k] = p;
    });
    team.team_barrier();
    if (!unscaled && q != infinity) {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, parts), [&](int k) {
        std::uint64_t const most = max_of(found + k / detail::block_threads * detail::block_threads);
        block const b = block_of(from + static_cast<std::uint64_t>(k / detail::block_threads));
        if (most == 0 || most >= double_infinity) return;
        int const e = exponent_of(double_of(most)), loaded = load_exponent(x.type, e), missing = -e - loaded;
        float const factor = power_of_two_float(missing > 127 ? 127 : missing);
        detail::part p;
        detail::with_type(x.type, [&](auto type) {
          detail::find_powers<decltype(type)::value>(x, b.first, b.count, k % detail::block_threads, q,
                                                     loaded, factor, p);
        });
        for (int j = 0; j < detail::thread_sums; ++j) found[k].sums[j] = p.sums[j];
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
    if (unscaled) s.sum *= globalq::power_of_two(-s.exponent() * static_cast<int>(q));
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

}  // namespace GLOBALQ_ABI::norm
