// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: statistics of a whole vector or of its buckets, merged along the same fixed tree on every backend.

#include "executor.hpp"
#include "host/value_leaves.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::norm {

/// The statistic of a block of a vector.
struct input_block {
  const_vector x;
  std::uint32_t q;
  kernel::value_leaves const* leaf = &kernel::host::leaves_of_values();
  statistic operator()(std::uint64_t first, int count) const { return leaf->statistic(x, first, count, q); }
};

/// Work item of reduce_buckets(): whole buckets, several if they are short.
template <class Block, class Statistic>
struct whole_buckets {
  Block block;
  Statistic* result;
  std::uint64_t count, width, buckets, group;

  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION void operator()(std::uint64_t item) const {
    std::uint64_t const end = (item + 1) * group < buckets ? (item + 1) * group : buckets;
    for (std::uint64_t b = item * group; b < end; ++b) {
      std::uint64_t const first = b * width, last = first + width < count ? first + width : count;
      result[b] = block(first, static_cast<int>(last - first));
    }
  }
};

/// Work item of reduce_buckets(): one block of a bucket that is longer than a block.
template <class Block, class Statistic>
struct bucket_blocks {
  Block block;
  Statistic* parts;
  std::uint64_t count, width, blocks;

  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION void operator()(std::uint64_t item) const {
    std::uint64_t const start = item / blocks * width, first = start + item % blocks * block_values;
    std::uint64_t last = start + width < first + block_values ? start + width : first + block_values;
    last = last < count ? last : count;
    if (first < last) parts[item] = block(first, static_cast<int>(last - first));
  }
};

/// Computes the statistics of consecutive buckets of values [0, count), along the same tree for every number of
/// threads.
///
/// @param merge   merge(a, b) returns the statistic of both parts; a is of the earlier values
/// @param bucket  values per bucket; 0: one bucket of all values
/// @param block   block(first, count) returns the statistic of at most block_values values; copied into the kernel
/// @param result  one per bucket
/// @param parts   workspace, reused between calls
/// @complexity    one pass; O(count / block_values) memory if buckets are longer than a block
template <class Executor, class Merge, class Block, class Statistic>
void reduce_buckets(Executor const& on, std::uint64_t count, std::uint64_t bucket, Merge const& merge,
                    Block const& block, std::span<Statistic> result, std::vector<Statistic>& parts) {
  if (count == 0) return;
  std::uint64_t const width = bucket == 0 ? count : std::min(bucket, count);
  std::uint64_t const buckets = divide_up(count, width);
  if (width <= block_values) {
    std::uint64_t const group = std::max<std::uint64_t>(1, block_values / width);
    on.items(divide_up(buckets, group),
             whole_buckets<Block, Statistic>{block, result.data(), count, width, buckets, group});
    return;
  }
  std::uint64_t const blocks = divide_up<std::uint64_t>(width, block_values);  // of one bucket
  if (parts.size() < buckets * blocks) parts.resize(buckets * blocks);
  on.items(buckets * blocks, bucket_blocks<Block, Statistic>{block, parts.data(), count, width, blocks});
  for (std::uint64_t b = 0; b < buckets; ++b) {
    std::uint64_t const values = std::min(width, count - b * width),
                        known = divide_up<std::uint64_t>(values, block_values);
    std::span<Statistic> const tree(parts.data() + b * blocks, known);
    for (std::uint64_t stride = 1; stride < known; stride *= 2)
      for (std::uint64_t i = 0; i + stride < known; i += 2 * stride)
        tree[i] = merge(tree[i], tree[i + stride]);
    result[b] = tree[0];
  }
}

/// reduce_buckets() for the norm of order @p q.
/// @determinism  the same bits for every number of threads
template <class Executor, class Block>
void bucket_statistics(Executor const& on, std::uint64_t count, std::uint64_t bucket, std::uint32_t q,
                       Block const& block, std::span<statistic> result, std::vector<statistic>& parts) {
  auto const of_both = [q](statistic const& a, statistic const& b) { return merge(a, b, q); };
  reduce_buckets(on, count, bucket, of_both, block, result, parts);
}

}  // namespace GLOBALQ_ABI::norm
