// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the statistics of buckets by one kernel on a stream; the bits of kernel/reduction.hpp.
///
/// A team copies the values of a block, or of several short buckets, to memory that its threads share, so that all of them
/// are asked for at once. Value i of a block belongs to partial sum i % 16, of which a thread adds one, in the order of the
/// values. The team that comes last at a node of the tree over the blocks merges what is below it, and the last of all calls
/// what follows: nothing else has to be launched.

#include "block_statistic.hpp"
#include "detail/block_tree.hpp"
#include "device/registers.hpp"
#include "executor.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>

namespace GLOBALQ_ABI::norm {

namespace detail {

/// Threads of a team.
inline constexpr int statistics_threads = 128;

/// Teams of a multiprocessor, of 21 KiB of shared memory each: Kokkos refuses a launch where they do not fit.
#if defined(KOKKOS_ARCH_AMPERE80) || defined(KOKKOS_ARCH_HOPPER90) || defined(KOKKOS_ARCH_BLACKWELL100)
inline constexpr int statistics_teams = 5;
#else
inline constexpr int statistics_teams = 3;
#endif

/// Copies count elements of Size bytes to where a team shares them: what a thread has to do. Several are asked for before the
/// first is written.
template <int Size>
GLOBALQ_FUNCTION void stage_elements(std::byte const* from, int count, int thread, std::byte* to) {
  namespace device = kernel::device;
  constexpr int ahead = 8, words = Size < 4 ? 1 : Size / 4;
  GLOBALQ_NO_UNROLL
  for (int at = thread; at < count; at += ahead * statistics_threads) {
    std::uint32_t element[ahead][words];
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) {
      int const i = at + r * statistics_threads;
      if (i < count) device::load_whole<Size>(from + i * Size, element[r]);
    }
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) {
      int const i = at + r * statistics_threads;
      if (i < count) device::store_whole<Size>(to + i * Size, element[r]);
    }
  }
}

/// The same for values of a vector, in accesses of 16 bytes where they lie so.
GLOBALQ_FUNCTION void stage_values(const_vector x, std::uint64_t first, int count, int thread,
                                   std::byte* to) {
  namespace device = kernel::device;
  int const size = static_cast<int>(size_of(x.type));
  std::byte const* const from =
      device::global(static_cast<std::byte const*>(x.data)) + first * static_cast<std::uint64_t>(size);
  int const units = device::aligned<16>(from) ? count * size / 16 : 0, done = 16 * units,
            rest = count - done / size;
  stage_elements<16>(from, units, thread, to);
  if (size == 4)
    stage_elements<4>(from + done, rest, thread, to + done);
  else if (size == 2)
    stage_elements<2>(from + done, rest, thread, to + done);
  else
    stage_elements<8>(from + done, rest, thread, to + done);
}

/// How values of a type lie in memory.
template <dtype Type>
struct patterns_of {
  static constexpr int size = static_cast<int>(size_of(Type));
  using magnitude = std::conditional_t<size == 8, std::uint64_t, std::uint32_t>;

  /// The bit pattern of the magnitude of a value.
  GLOBALQ_FUNCTION static magnitude pattern(std::byte const* value) {
    if constexpr (size == 2) {
      return *reinterpret_cast<kernel::device::uint16_alias const*>(value) & 0x7fffU;
    } else {
      std::uint32_t words[size / 4];
      kernel::device::load_whole<size>(value, words);
      if constexpr (size == 8)
        return ((static_cast<std::uint64_t>(words[1]) << 32) | words[0]) & double_magnitude;
      else
        return words[0] & float_magnitude;
    }
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

  /// The value with that pattern, of a type that float32 holds.
  GLOBALQ_FUNCTION static float exact(std::uint32_t m) {
    if constexpr (Type == dtype::float32)
      return float_of(m);
    else if constexpr (Type == dtype::float16)
      return float16::widen(static_cast<std::uint16_t>(m));
    else
      return bfloat16::widen(static_cast<std::uint16_t>(m));
  }
};

/// The largest magnitude among every step-th of some staged values, from the thread-th on.
template <dtype Type>
GLOBALQ_FUNCTION std::uint64_t find_max(std::byte const* values, int count, int thread, int step) {
  using patterns = patterns_of<Type>;
  using magnitude = typename patterns::magnitude;
  constexpr int ahead = 4;
  magnitude top = 0;
  int i = thread;
  GLOBALQ_NO_UNROLL
  for (; i + (ahead - 1) * step < count; i += ahead * step) {
    magnitude m[ahead];
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) m[r] = patterns::pattern(values + (i + r * step) * patterns::size);
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) top = top < m[r] ? m[r] : top;
  }
  GLOBALQ_NO_UNROLL
  for (; i < count; i += step) {
    magnitude const m = patterns::pattern(values + i * patterns::size);
    top = top < m ? m : top;
  }
  return patterns::max_bits(top);
}

/// How add_powers() sees values: loaded times 2^loaded, and then times a factor.
struct scaled_powers {
  int loaded;
  float factor;
  template <class Patterns>
  GLOBALQ_FUNCTION float operator()(Patterns, typename Patterns::magnitude m) const {
    return multiply(Patterns::scaled(m, loaded), factor);
  }
};
/// As they are.
struct plain_powers {
  template <class Patterns>
  GLOBALQ_FUNCTION float operator()(Patterns, typename Patterns::magnitude m) const {
    return Patterns::exact(m);
  }
};

/// Adds to partial sum number @p thread of add_powers().
/// @returns the largest magnitude
template <dtype Type, class Seen>
GLOBALQ_FUNCTION std::uint64_t find_powers(std::byte const* values, int count, int thread, std::uint32_t q,
                                           Seen const& seen, double& sum) {
  using patterns = patterns_of<Type>;
  typename patterns::magnitude top = 0;
  double partial = sum;
  with_power(q, [&](auto power) {
    for (int i = thread; i < count; i += 16) {
      auto const m = patterns::pattern(values + i * patterns::size);
      top = top < m ? m : top;
      partial += power(static_cast<double>(seen(patterns{}, m)));
    }
  });
  sum = partial;
  return patterns::max_bits(top);
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

/// What follows the statistics: nothing.
struct nothing_follows {
  GLOBALQ_FUNCTION void operator()() const {}
};

/// Calls what follows statistics of no values.
template <class Then>
struct call_then {
  Then then;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { then(); }
};

}  // namespace detail

/// The work of teams of threads: an item is one block of a long bucket, or some short buckets.
/// @tparam Then  called by one thread at the end
template <class Then>
struct block_statistics {
  static constexpr int team_threads = detail::statistics_threads, teams = detail::statistics_teams;
  /// Bytes of values that a team has side by side, and blocks.
  static constexpr int stage_bytes = 16384, most_blocks = 16;
  static constexpr std::size_t scratch_bytes =
      stage_bytes + most_blocks * 16 * sizeof(double) + most_blocks * 16 * sizeof(std::uint64_t);

  const_vector x;
  statistic* result;   ///< one a bucket
  std::uint64_t* top;  ///< raised to the largest max_bits
  detail::block_tree tree;
  std::uint64_t count, width, buckets, items;
  std::uint32_t q;
  int group;  ///< blocks of an item
  Then then;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    bool const is_part = tree.blocks > 1;  // of a bucket; else some buckets
    std::uint64_t const bucket = is_part ? item / tree.blocks : item * static_cast<std::uint64_t>(group),
                        i = is_part ? item - bucket * tree.blocks : 0, left = buckets - bucket;
    int const blocks = is_part || left > static_cast<std::uint64_t>(group) ? group : static_cast<int>(left);
    std::uint64_t const begin = bucket * width + i * tree.width,
                        bucket_end = (bucket + static_cast<std::uint64_t>(blocks)) * width,
                        block_end = begin + tree.width,
                        planned = is_part && block_end < bucket_end ? block_end : bucket_end,
                        end = planned < count ? planned : count;
    measure(team, begin, begin < end ? static_cast<int>(end - begin) : 0, blocks, shared{scratch});
    auto* const found = reinterpret_cast<statistic*>(scratch);
    if (is_part) {
      if (!tree.climb(team, bucket, i, q, found)) return;
      Kokkos::single(Kokkos::PerTeam(team), [&] {
        result[bucket] = found[0];
        finish(found[0].max_bits, buckets);
      });
      return;
    }
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks),
                         [&](int g) { result[bucket + static_cast<std::uint64_t>(g)] = found[g]; });
    team.team_barrier();
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      std::uint64_t most = 0;
      for (int g = 0; g < blocks; ++g) most = most < found[g].max_bits ? found[g].max_bits : most;
      finish(most, items);
    });
  }

 private:
  /// What a team shares. Statistics replace the values when these were used.
  struct shared {
    std::byte* stage;
    GLOBALQ_FUNCTION double* sums() const { return reinterpret_cast<double*>(stage + stage_bytes); }
    GLOBALQ_FUNCTION std::uint64_t* most() const {
      return reinterpret_cast<std::uint64_t*>(stage + stage_bytes) + most_blocks * 16;
    }
  };
  /// f(block, thread, staged values, count) for each of @p threads threads of each block, once its values, or some of them, are
  /// there. Several times where a block is larger than the stage.
  template <class Team, class F>
  KOKKOS_FUNCTION void for_values(Team const& team, std::uint64_t begin, int all, int blocks, int threads,
                                  shared const& s, F const& f) const {
    int const size = static_cast<int>(size_of(x.type)), most = stage_bytes / size;
    GLOBALQ_NO_UNROLL
    for (int from = 0; from < all; from += most) {
      int const here = all - from < most ? all - from : most;
      team.team_barrier();  // what was there before was used
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, team_threads), [&](int k) {
        detail::stage_values(x, begin + static_cast<std::uint64_t>(from), here, k, s.stage);
      });
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * threads), [&](int k) {
        // a block of a long bucket is alone, one of several a whole bucket
        int const g = k / threads, at = blocks == 1 ? 0 : g * static_cast<int>(width), left = here - at,
                  n = blocks == 1 || left < static_cast<int>(width) ? left : static_cast<int>(width);
        f(g, k % threads, s.stage + at * size, n);
      });
    }
    team.team_barrier();
  }

  /// The statistics of blocks that have all values of [begin, begin + all), at the start of the stage.
  template <class Team>
  KOKKOS_FUNCTION void measure(Team const& team, std::uint64_t begin, int all, int blocks,
                               shared const& s) const {
    bool const unscaled = x.type != dtype::float64 && q <= max_unscaled_order;
    // one block's largest value may be looked for by more threads than it has sums
    int const threads = blocks == 1 && !unscaled ? most_blocks * 4 : 16;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * threads), [&](int k) {
      s.most()[k] = 0;
      if (k < blocks * 16) s.sums()[k] = 0;
    });
    for_values(team, begin, all, blocks, threads, s, [&](int g, int t, std::byte const* values, int n) {
      detail::with_type(x.type, [&](auto type) {
        constexpr dtype of = decltype(type)::value;
        std::uint64_t most = 0;
        if (!unscaled)
          most = detail::find_max<of>(values, n, t, threads);
        else if constexpr (of != dtype::float64)
          most = detail::find_powers<of>(values, n, t, q, detail::plain_powers{}, s.sums()[g * 16 + t]);
        std::uint64_t& before = s.most()[g * threads + t];
        before = before < most ? most : before;
      });
    });
    if (!unscaled && q != infinity)
      for_values(team, begin, all, blocks, 16, s, [&](int g, int t, std::byte const* values, int n) {
        std::uint64_t const most = max_of(s.most() + g * threads, threads);
        if (most == 0 || most >= double_infinity) return;
        int const e = exponent_of(double_of(most)), loaded = load_exponent(x.type, e), missing = -e - loaded;
        float const factor = power_of_two_float(missing > 127 ? 127 : missing);
        detail::with_type(x.type, [&](auto type) {
          detail::find_powers<decltype(type)::value>(values, n, t, q, detail::scaled_powers{loaded, factor},
                                                     s.sums()[g * 16 + t]);
        });
      });
    auto* const found = reinterpret_cast<statistic*>(s.stage);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int g) {
      found[g] = put_together(max_of(s.most() + g * threads, threads), s.sums() + g * 16, unscaled);
    });
    team.team_barrier();
  }

  KOKKOS_FUNCTION static std::uint64_t max_of(std::uint64_t const* found, int number) {
    std::uint64_t most = 0;
    for (int t = 0; t < number; ++t) most = most < found[t] ? found[t] : most;
    return most;
  }
  KOKKOS_FUNCTION statistic put_together(std::uint64_t max_bits, double const* sums, bool unscaled) const {
    statistic s;
    s.max_bits = max_bits;
    if (q == infinity || !s.finite() || s.max_bits == 0) return s;
    s.sum = add_up(sums);
    if (unscaled) s.sum *= globalq::power_of_two(-s.exponent() * static_cast<int>(q));
    return s;
  }

  /// The end of one of @p all items or buckets.
  KOKKOS_FUNCTION void finish(std::uint64_t most, std::uint64_t all) const {
    if (top != nullptr && most != 0) Kokkos::atomic_max(top, most);
    if constexpr (!std::is_same_v<Then, detail::nothing_follows>)
      if (detail::block_tree::is_last(tree.counters, all)) then();
  }
};

/// Puts the statistics of consecutive buckets of x on the stream: one launch.
///
/// @param on      kernel::stream_executor
/// @param memory  of this stream
/// @param result  one a bucket
/// @param top     raised to the largest max_bits of all, or null
/// @param then    then() is called by one thread when all that is written
/// @complexity    one pass over x for q = infinity, and for q <= 6 unless x is float64; else two
/// @determinism   the bits of bucket_statistics()
template <class Executor, class Then = detail::nothing_follows>
void enqueue_statistics(Executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
                        std::uint32_t q, statistics_memory& memory, statistic* result, std::uint64_t* top,
                        Then const& then = {}) {
  using body = block_statistics<Then>;
  if (count == 0) {
    if constexpr (!std::is_same_v<Then, detail::nothing_follows>) on.items(1, detail::call_then<Then>{then});
    return;
  }
  std::uint64_t const width = bucket == 0 ? count : std::min(bucket, count),
                      staged = std::min<std::uint64_t>(block_values, body::stage_bytes / size_of(x.type)),
                      group = std::clamp<std::uint64_t>(staged / width, 1, body::most_blocks);
  detail::block_tree const tree = memory.get(on, count, bucket, q);
  std::uint64_t const buckets = divide_up(count, width), items = divide_up(buckets * tree.blocks, group);
  on.teams(items, body{x, result, top, tree, count, width, buckets, items, q, static_cast<int>(group), then});
}

}  // namespace GLOBALQ_ABI::norm
