// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the tree over the blocks of buckets; the last team to reach a node merges it.

#include "../../core/codec.hpp"
#include "../../norm/statistic.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>

namespace GLOBALQ_ABI::norm {

namespace detail {

/// A node has @c fan blocks or nodes below it. Teams store their results and count them. Counters are zero again after
/// the last merge, so that nothing must be cleared between launches.
///
/// It is the binary tree of reduce_buckets(); a node covers 8 levels of it.
struct block_tree {
  static constexpr std::uint64_t fan = 256;

  statistic* parts = nullptr;          ///< one per block
  std::uint32_t* counters = nullptr;   ///< one for finished items, and one per node of each bucket
  std::uint64_t blocks = 1;            ///< per bucket
  std::uint64_t width = block_values;  ///< values per block
  std::uint64_t* most = nullptr;  ///< the largest magnitude so far of the only bucket; zero between launches

  /// Values per block. For a maximum there may be fewer, so that shorter vectors also occupy all multiprocessors, or
  /// more, so that long vectors have few blocks.
  static std::uint64_t values_of_block(std::uint64_t count, std::uint64_t bucket, std::uint32_t q) {
    constexpr std::uint64_t occupies_all = std::uint64_t{1} << 20, most_blocks = 4096;
    if (q != infinity || bucket <= block_values) return block_values;
    if (count < occupies_all) return block_values / 4;
    std::uint64_t width = block_values;
    while (bucket >= count && count / width > most_blocks)
      width *= 2;  // each block ends with atomic operations on one address
    return width;
  }

  /// The number of nodes over the blocks of a bucket.
  GLOBALQ_FUNCTION static std::uint64_t nodes(std::uint64_t blocks) {
    std::uint64_t sum = 0;
    while (blocks > 1) {
      blocks = divide_up(blocks, fan);
      sum += blocks;
    }
    return sum;
  }

  /// Whether the caller, a single thread that ends @p mine of @p number parts, ends the last. If so, it sees all writes
  /// of the others before it.
  KOKKOS_FUNCTION static bool is_last(std::uint32_t* counter, std::uint64_t number, std::uint32_t mine = 1) {
    Kokkos::memory_fence();
    if (Kokkos::atomic_fetch_add(counter, mine) + mine != number) return false;
    *counter = 0;
    Kokkos::memory_fence();
    return true;
  }

  /// Stores the statistics of @p mine blocks of a bucket, from block @p i on, and merges up the tree while this team is
  /// the last at a node. They are below one node.
  /// @param found  shared by the team: the statistics, and room for @c fan of them
  /// @returns whether found[0] is the statistic of the bucket
  template <class Team>
  KOKKOS_FUNCTION bool climb(Team const& team, std::uint64_t bucket, std::uint64_t i, std::uint32_t q,
                             statistic* found, int mine = 1) const {
    statistic* const bucket_parts = parts + bucket * blocks;
    std::uint32_t* node_counters = counters + 1 + bucket * nodes(blocks);
    std::uint64_t stride = 1;
    for (std::uint64_t level = blocks; level > 1;) {
      std::uint64_t const node = i / fan, start = node * fan, left = level - start,
                          members = left < fan ? left : fan;
      bool last = false;
      Kokkos::single(
          Kokkos::PerTeam(team),
          [&](bool& is) {
            for (int k = 0; k < mine; ++k)
              bucket_parts[(i + static_cast<std::uint64_t>(k)) * stride] = found[k];
            is = is_last(node_counters + node, members, static_cast<std::uint32_t>(mine));
          },
          last);
      if (!last) return false;
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(members)), [&](int k) {
        found[k] = bucket_parts[(start + static_cast<std::uint64_t>(k)) * stride];
      });
      team.team_barrier();
      for (std::uint64_t s = 1; s < members; s *= 2) {
        std::uint64_t const pairs = (members + s - 1) / (2 * s);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(pairs)), [&](int k) {
          statistic* const both = found + 2 * s * static_cast<std::uint64_t>(k);
          both[0] = merge(both[0], both[s], q);
        });
        team.team_barrier();
      }
      level = divide_up(level, fan);
      node_counters += level;
      stride *= fan;
      i = node;
      mine = 1;
    }
    return true;
  }
};

struct clear_words {
  std::uint32_t* words;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const { words[i] = 0; }
};

}  // namespace detail

/// The workspace for statistics of buckets; belongs to one stream and is reused.
class statistics_memory {
 public:
  explicit statistics_memory(std::shared_ptr<byte_memory> const& memory) : parts_(memory), words_(memory) {}

  /// Whether the workspace is large enough for these buckets.
  bool holds(std::uint64_t count, std::uint64_t bucket, std::uint32_t q) const {
    sizes const s(count, bucket, q);
    return s.parts * sizeof(statistic) <= parts_.capacity() &&
           s.words * sizeof(std::uint32_t) <= words_.capacity();
  }

  /// @param on  used to clear new counters
  template <class Executor>
  detail::block_tree get(Executor const& on, std::uint64_t count, std::uint64_t bucket, std::uint32_t q) {
    sizes const s(count, bucket, q);
    bool const grows = s.words * sizeof(std::uint32_t) > words_.capacity();
    auto* const words = words_.get_values<std::uint32_t>(s.words);
    if (grows) on.items(s.words, detail::clear_words{words});
    return {parts_.get_values<statistic>(s.parts), words + sizes::before_counters, s.blocks, s.width,
            reinterpret_cast<std::uint64_t*>(words)};
  }

 private:
  struct sizes {
    static constexpr std::uint64_t before_counters = 2;  // block_tree::most
    std::uint64_t width = block_values, blocks = 1, parts = 0, words = before_counters + 1;
    sizes(std::uint64_t count, std::uint64_t bucket, std::uint32_t q) {
      if (count == 0) return;
      std::uint64_t const values = bucket == 0 ? count : std::min(bucket, count),
                          buckets = divide_up(count, values);
      width = detail::block_tree::values_of_block(count, values, q);
      blocks = divide_up(values, width);
      if (blocks > 1) parts = buckets * blocks;
      words += buckets * detail::block_tree::nodes(blocks);
    }
  };

  byte_buffer parts_, words_;
};

}  // namespace GLOBALQ_ABI::norm
