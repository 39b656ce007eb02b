// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: what reduce_scatter_mean and all_gather promise of centered operators, on one worker of any transport.

#include "tests/allreduce_mean/shards.hpp"

#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/operators.hpp>

#include <algorithm>
#include <vector>

namespace centered_shards {

namespace gq = globalq;

struct bounded {
  gq::any_quantizer op;
  double gap;  ///< the error of an encoding over half the range of its bucket, at most
};

/// Operators with local norms, as QSDP's. A random shift that is shifted back errs by half a gap, stochastic rounding by a gap,
/// rounding to the nearest by half the widest.
inline std::vector<bounded> operators() {
  gq::rounding::stochastic const dice;
  gq::norm::local<gq::infinity> const norm{100};
  return {
      {gq::centered{gq::operators::qsdp<8>(128)}, 0.5 / 127},
      {gq::centered{gq::operators::qsdp<4>(256)}, 0.5 / 7},
      {gq::centered{gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}}}, 1.0 / 7},
      {gq::centered{
           gq::quantizer{norm, gq::levels::table{0, 0.2, 1}, gq::rounding::nearest{}, gq::wire::packed<3>{}}},
       0.4},
  };
}

/// Operators whose codes are added as integers over nodes: whole vectors and buckets.
inline std::vector<gq::any_quantizer> exact_operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::centered{gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::int8{}}},
      gq::centered{
          gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::uniform{100}, dice, gq::wire::int16{}}},
  };
}

/// Values far from zero: (rank + 1) (8 + v) with multiples v of 2^-9 up to 4 either way. Midpoints are multiples of 2^-10, and
/// their sum over n workers is at most 6 n (n + 1), so float32 adds those of 50 workers exactly in any order.
inline std::vector<float> far_from_zero(std::size_t d, int rank) {
  std::vector<float> x = support::values(d, 7);
  for (float& v : x) v = static_cast<float>(rank + 1) * (8 + v);
  return x;
}

/// Half the range of the bucket that each value is in.
inline std::vector<double> half_ranges(std::vector<float> const& x, std::uint64_t bucket) {
  std::vector<double> half(x.size());
  for (std::size_t from = 0; from < x.size(); from += bucket) {
    std::size_t const to = std::min<std::size_t>(x.size(), from + bucket);
    auto const begin = x.begin() + static_cast<std::ptrdiff_t>(from),
               end = x.begin() + static_cast<std::ptrdiff_t>(to);
    auto const [low, high] = std::minmax_element(begin, end);
    double const range = static_cast<double>(*high) - static_cast<double>(*low);
    std::fill(half.begin() + static_cast<std::ptrdiff_t>(from),
              half.begin() + static_cast<std::ptrdiff_t>(to), range / 2);
  }
  return half;
}

/// What is gathered is near what the owners brought.
/// @param gap  the error of a value over half the range of its bucket, at most
template <class T>
void expect_gathered_shards(T& workers, gq::any_quantizer const& op, std::size_t d, double gap) {
  std::vector<float> const x = far_from_zero(d, 0);
  std::vector<float> const gathered = shards::expect_gathered_shards(workers, op, x);
  // shards begin at buckets, so theirs are those of the vector; values below 16 are rounded to multiples of 2^-20
  std::vector<double> const half = half_ranges(x, op.facts().bucket);
  for (std::size_t i = 0; i < d; ++i)
    ASSERT_NEAR(static_cast<double>(gathered[i]), static_cast<double>(x[i]), gap * half[i] + 0x1p-18)
        << op.facts().name << ' ' << i << " of " << d;
}

/// A shard of the mean over nodes is near the mean.
/// @param gap  the error of an encoding over half the range of its bucket, at most; 0: the bits are those without nodes
template <class T>
void expect_shards_of_the_mean_over_nodes(T& workers, gq::any_quantizer const& op,
                                          std::vector<int> const& split, std::size_t d, double gap) {
  std::vector<float> const shard = shards::expect_shards_of_the_mean_over_nodes(
      workers, op, split, far_from_zero(d, workers.rank()), gap == 0);
  if (gap == 0) return;
  // worker r brings (r + 1) times what worker 0 does, so the mean is (n + 1) / 2 times that, and so are mean half ranges. A
  // worker's error is at most gap H; that of its share in a node's sum gap (1 + gap) H; float32 rounds values below 2^7
  double const factor = (workers.size() + 1) / 2.0;
  std::vector<float> const one = far_from_zero(d, 0);
  std::vector<double> const half = half_ranges(one, op.facts().bucket);
  std::uint64_t i = gq::reduce_scatter_mean{workers, op}.shard(d).first;
  for (float const v : shard) {
    ASSERT_NEAR(static_cast<double>(v), factor * static_cast<double>(one[i]),
                gap * (2 + gap) * factor * half[i] + 0x1p-14)
        << op.facts().name << ", nodes " << support::text(split) << ' ' << i << " of " << d;
    ++i;
  }
}

/// Both calls over nodes, even and uneven.
template <class T>
void expect_nodes_of_any_size(T& workers) {
  for (std::vector<int> const& split : support::splits(workers.size()))
    for (std::size_t d : {1, 3007}) {
      bool const no_nodes = split.size() == 1 || split.size() == static_cast<std::size_t>(workers.size());
      for (gq::any_quantizer const& op : exact_operators())
        expect_shards_of_the_mean_over_nodes(workers, op, split, d, 0);
      for (auto const& [op, gap] : operators()) {
        expect_shards_of_the_mean_over_nodes(workers, op, split, d, no_nodes ? 0 : gap);
        shards::expect_gathered_shards_over_nodes(workers, op, split, far_from_zero(d, 0));
      }
    }
}

}  // namespace centered_shards
