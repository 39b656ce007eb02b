// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the only place that launches: runs a loop body over the values of a segment on an execution space.
///
/// A body is a small trivially copyable value with
/// `template <int Lanes> GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const`. On a host thread Lanes is 64:
/// the index-th 1,024 values (four random tiles, in L1). On a GPU thread Lanes is 2: groups lane and lane + 1 of random
/// tile index, four rows of 8 consecutive values, in registers. Both give the same bits. A body may have
/// `void prefetch(std::uint64_t index) const`, called on the host some time before 1,024 whole values are due.

#include "../core/error.hpp"
#include "../core/prefetch.hpp"
#include "../random/stream.hpp"
#include "float_environment.hpp"

#include <algorithm>
#include <memory>

namespace globalq::kernel {

using random::tile_values;

/// Groups that a host thread treats together. Few enough for L1, and enough that what is done once for them is cheap.
inline constexpr int host_lanes = 64;
inline constexpr std::uint64_t host_values = 16 * host_lanes;

/// Whether a host thread has whole buckets in its piece of values, so that it can measure what it encodes there.
constexpr bool buckets_fit(std::uint64_t bucket) { return bucket != 0 && host_values % bucket == 0; }

/// Pieces of host_values in one unit of work of a host thread.
inline constexpr std::uint64_t block_pieces = 4;

/// Runs on any host space. The space is erased: a body is compiled once, whatever the number of spaces.
class host_executor {
 public:
  using work = void (*)(void const* context, std::uint64_t index);

  /// @param space  Serial or OpenMP instance; copied
  template <class Space>
  requires(static_cast<bool>(Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::
                                 accessible)) explicit host_executor(Space const& space)
      : run_(&run_on<Space>), space_(std::make_shared<Space>(space)) {}

  /// Body over all of [0, count) values.
  template <class Body>
  void values(std::uint64_t count, Body const& body) const {
    struct context {
      Body const* body;
      std::uint64_t count, pieces;
    } const c{&body, count, divide_up(count, host_values)};
    each(divide_up(c.pieces, block_pieces), &c, [](void const* p, std::uint64_t block) {
      context const& ctx = *static_cast<context const*>(p);
      std::uint64_t const end = std::min(ctx.pieces, (block + 1) * block_pieces);
      for (std::uint64_t i = block * block_pieces; i < end; ++i) {
        if constexpr (requires { ctx.body->prefetch(i); })
          if (ctx.count >= prefetch_from && (i + 1) * host_values + values_ahead <= ctx.count)
            ctx.body->prefetch(i + values_ahead / host_values);
        ctx.body->template tile<host_lanes>(i, 0);
      }
    });
  }

  /// f(i) for i in [0, count), each a piece of work of some microseconds.
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    each(count, &f, [](void const* p, std::uint64_t i) { (*static_cast<F const*>(p))(i); });
  }

 private:
  template <class Space>
  static void run_on(void const* space, std::uint64_t count, void const* context, work f) {
    Kokkos::parallel_for("globalq",
                         Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>>(
                             *static_cast<Space const*>(space), 0, count, Kokkos::ChunkSize(1)),
                         [=](std::uint64_t i) {
                           float_environment const exact;
                           f(context, i);
                         });
  }

  void each(std::uint64_t count, void const* context, work f) const {
    if (count == 0) return;
    if (count == 1) {  // a short vector: no threads to wake
      float_environment const exact;
      f(context, 0);
      return;
    }
    run_(space_.get(), count, context, f);
  }

  void (*run_)(void const*, std::uint64_t, void const*, work);
  std::shared_ptr<void const> space_;
};

/// Runs on a device space: one thread for each eighth of a tile.
template <class Space>
class device_executor {
 public:
  static constexpr int lanes = 2;

  explicit device_executor(Space const& space) : space_(space) {}

  template <class Body>
  void values(std::uint64_t count, Body const& body) const {
    constexpr std::uint64_t threads = 16 / lanes;
    Kokkos::parallel_for(
        "globalq",
        Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>>(
            space_, 0, divide_up<std::uint64_t>(count, tile_values) * threads),
        KOKKOS_LAMBDA(std::uint64_t i) {
          body.template tile<lanes>(i / threads, static_cast<int>(i % threads) * lanes);
        });
  }

  template <class F>
  void items(std::uint64_t count, F const& f) const {
    Kokkos::parallel_for(
        "globalq", Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>>(space_, 0, count),
        KOKKOS_LAMBDA(std::uint64_t i) { f(i); });
  }

 private:
  Space space_;
};

/// The part of a row of a tile that lies in [0, count): offset within the vector and number of values.
struct row {
  std::uint64_t first;
  int count;
};

/// Rows of a thread's share: one on a host thread, else four of 4 * Lanes values.
template <int Lanes>
inline constexpr int rows = Lanes >= 16 ? 1 : 4;
template <int Lanes>
inline constexpr int row_values = 16 * Lanes / rows<Lanes>;

/// Random tiles of a share.
template <int Lanes>
inline constexpr std::uint64_t share_tiles = Lanes >= 16 ? Lanes / 16 : 1;

/// Row r of a share.
template <int Lanes>
GLOBALQ_FUNCTION row row_of(std::uint64_t index, int lane, int r, std::uint64_t count) {
  std::uint64_t const first =
      index * share_tiles<Lanes> * tile_values + static_cast<std::uint64_t>(64 * r + 4 * lane);
  if (first >= count) return {first, 0};
  std::uint64_t const left = count - first;
  return {first,
          left < static_cast<std::uint64_t>(row_values<Lanes>) ? static_cast<int>(left) : row_values<Lanes>};
}

/// f(bucket, offset in the row, values) for each run of a row that lies in one bucket.
/// @param first  index of the row's first value in the vector
GLOBALQ_ANY_FUNCTION
template <class F>
GLOBALQ_FUNCTION void for_each_run(std::uint64_t first, int count, std::uint64_t bucket, F&& f) {
  if (bucket == 0) {
    if (count > 0) f(std::uint64_t{0}, 0, count);
    return;
  }
  std::uint64_t b = first / bucket, left = (b + 1) * bucket - first;
  for (int at = 0; at < count;) {
    int const m = left < static_cast<std::uint64_t>(count - at) ? static_cast<int>(left) : count - at;
    f(b, at, m);
    at += m;
    ++b;
    left = bucket;
  }
}

}  // namespace globalq::kernel
