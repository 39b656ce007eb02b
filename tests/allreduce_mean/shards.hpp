// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: what reduce_scatter_mean, all_gather, broadcast and all_to_all promise, on one worker of any transport.

#include "tests/support/calls.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/values.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/all_to_all.hpp>
#include <globalq/collective/broadcast.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/globalq.hpp>
#include <globalq/operator/vector_codec.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace shards {

namespace gq = globalq;
using support::values;

inline std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::exponential<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::uniform{5}, gq::rounding::random_shift<>{},
                    gq::wire::packed<5>{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 512}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::table{0, 0.1, 1}, dice,
                    gq::wire::packed<3>{}},
      gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{9}, dice, gq::wire::elias<>{}},
      gq::uncompressed{},
      gq::floats<gq::float16>{},
  };
}

inline bool same_bits(float const* a, float const* b, std::uint64_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

/// A shard of the mean is a part of the mean over schedule::allgather, whether it is written in place or alone.
template <class T>
void expect_shards_of_the_mean(T& workers, gq::any_quantizer const& op, std::vector<float> const& x) {
  std::size_t const d = x.size();
  gq::options const settings{.seed = 3}, chunks{.seed = 3, .chunk_values = 300};
  gq::allreduce_mean whole{workers, op, gq::schedule::allgather{}, settings};
  gq::reduce_scatter_mean mean{workers, op, settings}, cut{workers, op, chunks};
  std::vector<float> expected = x, in_place = x;
  whole(expected, 7);
  gq::segment const own = mean.shard(d);
  std::vector<float> alone(own.count);
  mean(in_place, 7);
  cut(x, alone, 7);
  EXPECT_TRUE(same_bits(in_place.data() + own.first, expected.data() + own.first, own.count))
      << op.facts().name;
  EXPECT_TRUE(same_bits(alone.data(), expected.data() + own.first, own.count)) << op.facts().name;
  EXPECT_TRUE(same_bits(in_place.data(), x.data(), own.first)) << "shards of others are left alone";
  std::size_t const end = own.first + own.count;
  EXPECT_TRUE(same_bits(in_place.data() + end, x.data() + end, d - end));
  std::uint64_t covered = 0;
  for (int r = 0; r < workers.size(); ++r) {
    EXPECT_TRUE(mean.shard(d, r).first == covered || mean.shard(d, r).empty());
    covered += mean.shard(d, r).count;
  }
  EXPECT_EQ(covered, d);
}

/// All workers hold the same bits, whole or in chunks.
/// @param x  the same on all workers
/// @return what is gathered
template <class T>
std::vector<float> expect_gathered_shards(T& workers, gq::any_quantizer const& op,
                                          std::vector<float> const& x) {
  std::size_t const d = x.size();
  gq::options const settings{.seed = 3}, chunks{.seed = 3, .chunk_values = 300};
  gq::all_gather gather{workers, op, settings}, cut{workers, op, chunks};
  gq::segment const own = gather.shard(d);
  // what lies outside of the own shard is not looked at
  std::vector<float> in_place(d, std::numeric_limits<float>::quiet_NaN()), other(d);
  auto const mine = std::span(x).subspan(own.first, own.count);
  std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<std::ptrdiff_t>(own.first));
  gather(in_place, 5);
  cut(mine, other, 5);
  EXPECT_TRUE(same_bits(in_place.data(), other.data(), d)) << op.facts().name;
  std::vector<float> all(d * static_cast<std::size_t>(workers.size()));
  if (d != 0)
    gq::transport::allgather(workers, std::as_bytes(std::span<float const>(in_place)),
                             std::as_writable_bytes(std::span(all)));
  for (int r = 0; r < workers.size(); ++r)
    EXPECT_TRUE(same_bits(in_place.data(), all.data() + d * static_cast<std::size_t>(r), d))
        << op.facts().name << ' ' << d;
  if (!op.facts().rounds()) {
    EXPECT_TRUE(same_bits(in_place.data(), x.data(), d));
  }
  return in_place;
}

/// All workers hold the same bits as the root, in place or from another vector, whole or in chunks. If sums are exact, they are
/// n times the mean of the root's vector and zeros.
/// @param x  of the root
template <class T>
std::vector<float> expect_one_vector_everywhere(T& workers, gq::any_quantizer const& op, int root,
                                                std::vector<float> const& x) {
  std::size_t const d = x.size();
  int const n = workers.size();
  gq::broadcast send{workers, op, root, {.seed = 3}},
      cut{workers, op, root, {.seed = 3, .chunk_values = 300}};
  bool const has = workers.rank() == root;
  std::vector<float> in_place(d, std::numeric_limits<float>::quiet_NaN()), other(d), unread = in_place,
                                                                                     zeros(d);
  if (has) in_place = unread = zeros = x;
  send(in_place, 5);
  cut(unread, other, 5);
  EXPECT_TRUE(same_bits(in_place.data(), other.data(), d)) << op.facts().name;
  if (has) {
    EXPECT_TRUE(same_bits(unread.data(), x.data(), d));
  }
  std::vector<float> all(d * static_cast<std::size_t>(n));
  if (d != 0)
    gq::transport::allgather(workers, std::as_bytes(std::span<float const>(in_place)),
                             std::as_writable_bytes(std::span(all)));
  for (int r = 0; r < n; ++r)
    EXPECT_TRUE(same_bits(in_place.data(), all.data() + d * static_cast<std::size_t>(r), d))
        << op.facts().name << ' ' << d << ", root " << root;
  if (!op.facts().rounds()) {
    EXPECT_TRUE(same_bits(in_place.data(), x.data(), d));
  }
  gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 3}};
  mean(zeros, 5);
  double square = 0, error = 0;
  for (std::size_t i = 0; i < d; ++i) {
    double const sum = static_cast<double>(zeros[i]) * n;
    square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    error += (sum - static_cast<double>(in_place[i])) * (sum - static_cast<double>(in_place[i]));
    if ((n & (n - 1)) == 0 && !op.facts().shifts && !op.facts().local) {
      EXPECT_EQ(in_place[i], static_cast<float>(sum)) << op.facts().name << ' ' << d;
    }
  }
  // the other workers draw shifts for their zeros
  if (!op.facts().shifts) {
    EXPECT_LE(error, 1e-12 * square) << op.facts().name << ' ' << d;
  }
  return in_place;
}

/// Part p is what worker p has encoded for this worker, in place or from another vector, whole or in chunks: with local norms, a frame of
/// vector_codec.
template <class T>
void expect_parts_of_all(T& workers, gq::any_quantizer const& op, std::size_t each) {
  int const n = workers.size(), r = workers.rank();
  auto const part = [&](int from, int to) { return values(each, 100 * from + to); };
  std::vector<float> x;
  for (int p = 0; p < n; ++p)
    for (float v : part(r, p)) x.push_back(v);
  gq::all_to_all exchange{workers, op, {.seed = 3}}, cut{workers, op, {.seed = 3, .chunk_values = 256}};
  std::vector<float> y(x.size()), in_place = x;
  exchange(x, y, 5);
  cut(in_place, 5);
  EXPECT_TRUE(same_bits(y.data(), in_place.data(), y.size())) << op.facts().name;
  for (int p = 0; p < n; ++p) {
    std::vector<float> expected = part(p, r);
    if (op.facts().rounds() && !op.facts().local) continue;
    if (op.facts().rounds() && each != 0) {
      gq::vector_codec codec{op};
      std::uint64_t const step = 5 * static_cast<std::uint64_t>(n) + static_cast<std::uint64_t>(r);
      gq::encoding_key const key{.seed = 3, .step = step, .worker = static_cast<std::uint32_t>(p)};
      std::vector<std::byte> frame(codec.frame_bytes(each));
      codec.encode(expected, key, frame);
      codec.decode(frame, key, expected);
    }
    EXPECT_TRUE(same_bits(y.data() + static_cast<std::size_t>(p) * each, expected.data(), each))
        << op.facts().name << ' ' << p;
  }
}

/// Gathering is n times the mean of vectors that are zero outside of the own shard: exact where n is a power of two, codes
/// of zero mean zero, and the norm is that of all.
template <class T>
void expect_a_mean_of_padded_vectors(T& workers, std::size_t d) {
  gq::rounding::stochastic const dice;
  for (gq::any_quantizer const& op : std::vector<gq::any_quantizer>{
           gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::int8{}},
           gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::exponential{5}, dice, gq::wire::packed<4>{}},
           gq::quantizer{gq::norm::linf{.bucket = 256}, gq::levels::uniform{3}, dice,
                         gq::wire::packed<3>{}}}) {
    gq::all_gather gather{workers, op, {.seed = 8}};
    gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 8}};
    gq::segment const own = gather.shard(d);
    std::vector<float> const x = values(d, 42);
    std::vector<float> padded(d), gathered = x;
    for (std::uint64_t i = own.first; i < own.first + own.count; ++i) padded[i] = x[i];
    gather(gathered, 2);
    mean(padded, 2);
    for (float& v : padded) v *= static_cast<float>(workers.size());
    EXPECT_EQ(gathered, padded) << op.facts().name;
  }
}

/// Operators whose sums are exact in any order: integers, and values that are multiples of 2^-9 below 4.
inline std::vector<gq::any_quantizer> exact_operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::uniform{100}, dice, gq::wire::int16{}},
      gq::uncompressed{},
  };
}

/// A shard of the mean over nodes, whole or in chunks, in place or alone.
/// @param exact  the bits are those of a mean without nodes
/// @return this worker's shard
template <class T>
std::vector<float> expect_shards_of_the_mean_over_nodes(T& workers, gq::any_quantizer const& op,
                                                        std::vector<int> const& split,
                                                        std::vector<float> const& x, bool exact) {
  gq::schedule::hierarchical<> const nodes{split};
  gq::options const settings{.seed = 3}, chunks{.seed = 3, .chunk_values = 300};
  Kokkos::Serial const on_one_core;  // as many threads as workers are enough
  gq::reduce_scatter_mean flat{workers, op, settings, on_one_core},
      mean{workers, op, nodes, settings, on_one_core}, cut{workers, op, nodes, chunks, on_one_core};
  std::size_t const d = x.size();
  std::string const what = op.facts().name + ", nodes " + support::text(split);
  gq::segment const own = mean.shard(d);
  EXPECT_EQ(own.first, flat.shard(d).first);
  EXPECT_EQ(own.count, flat.shard(d).count);
  std::vector<float> in_place = x, alone(own.count), expected(own.count);
  mean(in_place, 7);
  cut(x, alone, 7);
  flat(x, expected, 7);
  EXPECT_TRUE(same_bits(in_place.data() + own.first, alone.data(), own.count)) << what;
  EXPECT_TRUE(same_bits(in_place.data(), x.data(), own.first)) << "shards of others are left alone";
  std::size_t const end = own.first + own.count;
  EXPECT_TRUE(same_bits(in_place.data() + end, x.data() + end, d - end));
  if (exact) {
    EXPECT_TRUE(same_bits(alone.data(), expected.data(), own.count)) << what;
  }
  return alone;
}

/// What is gathered over nodes, whole or in chunks, are the bits of a gathering without.
/// @param x  the same on all workers
template <class T>
void expect_gathered_shards_over_nodes(T& workers, gq::any_quantizer const& op, std::vector<int> const& split,
                                       std::vector<float> const& x) {
  std::size_t const d = x.size();
  gq::schedule::hierarchical<> const nodes{split};
  gq::options const settings{.seed = 3}, chunks{.seed = 3, .chunk_values = 300};
  Kokkos::Serial const on_one_core;
  gq::all_gather flat{workers, op, settings, on_one_core}, gather{workers, op, nodes, settings, on_one_core},
      cut{workers, op, nodes, chunks, on_one_core};
  gq::segment const own = flat.shard(d);
  std::vector<float> in_place(d, std::numeric_limits<float>::quiet_NaN()), other(d), expected = x;
  std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(own.first), own.count,
              in_place.begin() + static_cast<std::ptrdiff_t>(own.first));
  flat(expected, 5);
  gather(in_place, 5);
  cut(std::span(x).subspan(own.first, own.count), other, 5);
  std::string const what = op.facts().name + ", nodes " + support::text(split);
  EXPECT_TRUE(same_bits(in_place.data(), expected.data(), d)) << what;
  EXPECT_TRUE(same_bits(other.data(), expected.data(), d)) << what;
}

}  // namespace shards
