// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the statistics of buckets in one kernel on a stream; gives the same bits as kernel/reduction.hpp.
///
/// A team copies the values of a block, or of several short buckets, to shared memory, so that all loads are in flight
/// at once; maxima and sums of squares of long vectors need no copy. Value i of a block belongs to partial sum i % 16,
/// which one thread adds in the order of the values. The last team to reach a node of the tree over the blocks merges the
/// statistics below it. The last team of all calls the continuation, so no other launch is needed.

#include "block_statistic.hpp"
#include "detail/block_tree.hpp"
#include "detail/team_statistics.hpp"
#include "device/registers.hpp"
#include "device/team_collectives.hpp"
#include "executor.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>

namespace GLOBALQ_ABI::norm {

namespace detail {

/// A thread's part of copying count elements of Size bytes to shared memory. It loads several elements before it stores
/// the first.
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

/// The same for values of a vector, in accesses of 16 bytes if they are aligned.
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

/// An empty continuation.
struct nothing_follows {
  GLOBALQ_FUNCTION void operator()() const {}
};

/// Calls the continuation when there are no values.
template <class Then>
struct call_then {
  Then then;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { then(); }
};

}  // namespace detail

/// The work of teams of threads. An item is one block of a long bucket, or several short buckets.
/// @tparam Then  the continuation; one thread calls it at the end
template <class Then>
struct block_statistics {
  static constexpr int team_threads = detail::statistics_threads, teams = detail::statistics_teams;
  /// Bytes of values, and number of blocks, that a team holds at a time.
  static constexpr int stage_bytes = 16384, most_blocks = detail::shared_sums::most_blocks;
  static constexpr std::size_t scratch_bytes = stage_bytes + detail::shared_sums::bytes;

  const_vector x;
  statistic* result;   ///< one per bucket
  std::uint64_t* top;  ///< raised to the largest max_bits
  detail::block_tree tree;
  std::uint64_t count, width, buckets, items;
  std::uint32_t q;
  int group;  ///< blocks per item
  Then then;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    bool const is_part = tree.blocks > 1;  // the item is one block of a bucket; else several buckets
    std::uint64_t const bucket = is_part ? item / tree.blocks : item * static_cast<std::uint64_t>(group),
                        i = is_part ? item - bucket * tree.blocks : 0, left = buckets - bucket;
    int const blocks = is_part || left > static_cast<std::uint64_t>(group) ? group : static_cast<int>(left);
    std::uint64_t const begin = bucket * width + i * tree.width,
                        bucket_end = (bucket + static_cast<std::uint64_t>(blocks)) * width,
                        block_end = begin + tree.width,
                        planned = is_part && block_end < bucket_end ? block_end : bucket_end,
                        end = planned < count ? planned : count;
    int const values = begin < end ? static_cast<int>(end - begin) : 0;
    auto* const found = reinterpret_cast<statistic*>(scratch);  // overwrites the values after their use
    detail::team_statistics<detail::any_type>{x.type, q}.measure(
        team, blocks, {scratch + stage_bytes},
        [&](int threads, auto const& f) { for_values(team, begin, values, blocks, threads, scratch, f); },
        found);
    if (is_part && !tree.climb(team, bucket, i, q, found)) return;
    conclude(team, bucket, blocks, found, is_part ? buckets : items);
  }

 protected:
  /// Writes the results of some buckets, and ends one of @p all items or buckets.
  template <class Team>
  KOKKOS_FUNCTION void conclude(Team const& team, std::uint64_t bucket, int number, statistic const* found,
                                std::uint64_t all) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, number),
                         [&](int g) { result[bucket + static_cast<std::uint64_t>(g)] = found[g]; });
    team.team_barrier();
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      std::uint64_t most = 0;
      for (int g = 0; g < number; ++g) most = most < found[g].max_bits ? found[g].max_bits : most;
      finish(most, all);
    });
  }

  /// Ends one of @p all items or buckets.
  KOKKOS_FUNCTION void finish(std::uint64_t most, std::uint64_t all) const {
    if (top != nullptr && most != 0) Kokkos::atomic_max(top, most);
    if constexpr (!std::is_same_v<Then, detail::nothing_follows>)
      if (detail::block_tree::is_last(tree.counters, all)) then();
  }

 private:
  /// Calls f(block, thread, staged values, count) for each of @p threads threads of each block, after staging the
  /// values. Repeats in parts if a block is larger than the stage.
  template <class Team, class F>
  KOKKOS_FUNCTION void for_values(Team const& team, std::uint64_t begin, int all, int blocks, int threads,
                                  std::byte* stage, F const& f) const {
    int const size = static_cast<int>(size_of(x.type)), most = stage_bytes / size;
    GLOBALQ_NO_UNROLL
    for (int from = 0; from < all; from += most) {
      int const here = all - from < most ? all - from : most;
      team.team_barrier();  // the previous values are no longer needed
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, team_threads), [&](int k) {
        detail::stage_values(x, begin + static_cast<std::uint64_t>(from), here, k, stage);
      });
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * threads), [&](int k) {
        // one block of a long bucket, or several blocks that are whole buckets
        int const g = k / threads, at = blocks == 1 ? 0 : g * static_cast<int>(width), left = here - at,
                  n = blocks == 1 || left < static_cast<int>(width) ? left : static_cast<int>(width);
        f(g, k % threads, stage + at * size, n);
      });
    }
    team.team_barrier();
  }
};

/// block_statistics of buckets of several blocks, where suits() allows it: values go to registers, not through shared
/// memory.
///
/// An item is a block, of which all threads find the maximum, or some blocks, of which 16 threads each add the squares. A
/// team needs little shared memory and few barriers, so many teams are under way.
template <class Then>
struct long_block_statistics : block_statistics<Then> {
  using base = block_statistics<Then>;
  using base::count;
  using base::q;
  using base::team_threads;
  using base::tree;
  using base::width;
  using base::x;
  static constexpr int teams = 7;
  static constexpr std::size_t found_bytes = detail::block_tree::fan * sizeof(statistic),
                               scratch_bytes = found_bytes + detail::shared_sums::bytes;
  /// Blocks of an item of sums. They are below the same node.
  static constexpr int side_by_side = team_threads / 16;
  static_assert(detail::block_tree::fan % side_by_side == 0);

  explicit long_block_statistics(base const& all) : base(all) {
    this->group = q == infinity ? 1 : side_by_side;
    this->items = this->buckets * items_of_bucket();
  }

  /// Sums of short vectors have too few items to occupy all multiprocessors.
  static bool suits(const_vector x, std::uint64_t count, detail::block_tree const& tree, std::uint32_t q) {
    constexpr std::uint64_t least_sum = std::uint64_t{1} << 22;
    return tree.blocks > 1 && (q == infinity || (q == 2 && x.type != dtype::float64 && count >= least_sum));
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    if (q == infinity && this->buckets == 1) return find_maximum(team, item);
    std::uint64_t const each = static_cast<std::uint64_t>(this->group), bucket = item / items_of_bucket(),
                        i = (item - bucket * items_of_bucket()) * each, left = tree.blocks - i,
                        blocks = left < each ? left : each, begin = bucket * width + i * tree.width,
                        bucket_end = (bucket + 1) * width, block_end = begin + blocks * tree.width,
                        planned = block_end < bucket_end ? block_end : bucket_end,
                        end = planned < count ? planned : count;
    int const values = begin < end ? static_cast<int>(end - begin) : 0;
    std::byte const* const from =
        kernel::device::global(static_cast<std::byte const*>(x.data)) + begin * size_of(x.type);
    auto* const found = reinterpret_cast<statistic*>(scratch);
    detail::team_statistics<detail::any_type> const of{x.type, q};
    if (q == infinity) {
      std::uint64_t const pattern = of.max_pattern(team, from, values);
      Kokkos::single(Kokkos::PerTeam(team), [&] { found[0] = statistic{of.max_bits(pattern), 0}; });
      team.team_barrier();
    } else {
      of.add_squares_in_memory(team, static_cast<int>(blocks), from, values, {scratch + found_bytes}, found);
    }
    if (tree.climb(team, bucket, i, q, found, static_cast<int>(blocks)))
      base::conclude(team, bucket, 1, found, this->buckets);
  }

 private:
  /// An item of the maximum of the whole vector, which needs no tree.
  template <class Team>
  KOKKOS_FUNCTION void find_maximum(Team const& team, std::uint64_t item) const {
    std::uint64_t const begin = item * tree.width, left = count - begin;
    detail::team_statistics<detail::any_type> const of{x.type, q};
    std::uint64_t const pattern = of.max_pattern(
        team, kernel::device::global(static_cast<std::byte const*>(x.data)) + begin * size_of(x.type),
        static_cast<int>(left < tree.width ? left : tree.width));
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      if (pattern != 0) Kokkos::atomic_max(tree.most, of.max_bits(pattern));
      if (!detail::block_tree::is_last(tree.counters, this->items)) return;
      std::uint64_t const all = *tree.most;
      *tree.most = 0;
      this->result[0] = statistic{all, 0};
      this->finish(all, 1);
    });
  }

  GLOBALQ_FUNCTION std::uint64_t items_of_bucket() const {
    return divide_up<std::uint64_t>(tree.blocks, static_cast<std::uint64_t>(this->group));
  }
};

/// Enqueues the computation of the statistics of consecutive buckets of x, in one launch.
///
/// @param on      kernel::stream_executor
/// @param memory  of this stream
/// @param result  one per bucket
/// @param top     raised to the largest max_bits of all buckets, or null
/// @param then    continuation; one thread calls then() after all results are written
/// @complexity    one pass over x for q = infinity, and for q <= 6 unless x is float64; else two
/// @determinism   the same bits as bucket_statistics()
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
  body const all{x, result, top, tree, count, width, buckets, items, q, static_cast<int>(group), then};
  using long_body = long_block_statistics<Then>;
  if (!long_body::suits(x, count, tree, q)) return on.teams(items, all);
  long_body const direct(all);
  on.teams(direct.items, direct);
}

}  // namespace GLOBALQ_ABI::norm
