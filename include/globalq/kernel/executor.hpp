// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the only code that launches: runs a loop body over the values of a segment on an execution space.
///
/// A body is a small trivially copyable value. A body for a host has `void work(std::uint64_t index) const` for the
/// index-th 1,024 values (four random tiles, in L1). It may have `void prefetch(std::uint64_t index) const`, called
/// some time before 1,024 whole values are processed.
///
/// A body for a device is written for registers. A GPU thread has Lanes 1, 2 or 4: it processes groups lane to lane +
/// Lanes of random tile index, four rows of 4 Lanes consecutive values. The body has
/// - `template <int Lanes, int Rows> GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const`,
/// - `static constexpr int device_lanes`; if it may have codes but no values, also `code_lanes` and
///   `bool has_values() const`,
/// - `static constexpr int blocks(int lanes, int rows)`: blocks of 256 threads per multiprocessor, which bounds the
///   registers,
/// - `bool fits_registers() const`: true selects Rows = 4, all rows at once; false selects Rows = 1, one row after the
///   other. If it is `static constexpr`, only the selected kernel is compiled.
///
/// A body for both has `template <int Lanes> GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const`; on a
/// host thread Lanes is 64. All give the same bits.

#include "../core/detail/forced_unwind.hpp"
#include "../core/error.hpp"
#include "../core/float_environment.hpp"
#include "../core/prefetch.hpp"
#include "compiled_for.hpp"
#include "leaf.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include <pthread.h>

namespace GLOBALQ_ABI::detail {

/// Whether this process was forked while Kokkos was running. The threads of Kokkos do not exist here, and other threads
/// of the parent may have held its locks: a launch could wait forever.
inline bool forked_from_kokkos = false;
inline int const detects_forks =
    ::pthread_atfork(nullptr, nullptr, [] { forked_from_kokkos = Kokkos::is_initialized(); });

}  // namespace GLOBALQ_ABI::detail

namespace GLOBALQ_ABI::kernel {

template <class Space>
class stream_executor;  // stream.hpp

using random::tile_values;

/// Whether the values that a host thread processes at a time are whole buckets, so that it can measure and encode them
/// at once.
constexpr bool buckets_fit(std::uint64_t bucket) { return bucket != 0 && host_values % bucket == 0; }

/// Pieces of host_values in one work item of a host thread.
inline constexpr std::uint64_t block_pieces = 4;

/// @throws configuration_error unless Kokkos is running; every launch goes through this check
template <class Space>
Space const& running(Space const& space) {
  if (!Kokkos::is_initialized() || Kokkos::is_finalized())
    throw configuration_error(
        "globalq: Kokkos is not running; keep a Kokkos::ScopeGuard in main while globalq is used");
  return space;
}

/// Runs on any host space. The type of the space is erased, so a body is compiled once for all spaces.
class host_executor {
 public:
  using work = void (*)(void const* context, std::uint64_t index);

  /// @param space  Serial or OpenMP instance; copied
  template <class Space>
  requires(static_cast<bool>(Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::
                                 accessible)) explicit host_executor(Space const& space)
      : host_executor(&run_on<Space>, std::make_shared<Space>(running(space)), space.concurrency()) {}

  /// Refers to a space that outlives the executor, without a copy or an allocation.
  template <class Space>
  static host_executor borrowing(Space const& space) {
    return host_executor(&run_on<Space>, std::shared_ptr<void const>(std::shared_ptr<void const>(), &space),
                         space.concurrency());
  }

  /// The largest number of threads that take part.
  int threads() const { return threads_; }

  /// Runs a body over [0, count) values.
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
        if constexpr (requires { ctx.body->work(i); })
          ctx.body->work(i);
        else
          ctx.body->template tile<host_lanes>(i, 0);
      }
    });
  }

  /// Calls f(i) for i in [0, count); each should be some microseconds of work.
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    each(count, &f, [](void const* p, std::uint64_t i) { (*static_cast<F const*>(p))(i); });
  }

 private:
  using runner = void (*)(void const*, std::uint64_t, std::uint64_t, void const*, work);
  host_executor(runner run, std::shared_ptr<void const> space, int threads)
      : run_(run), space_(std::move(space)), threads_(threads) {}

  /// One share per thread, so that each sets its floating-point environment once. An exception of a share (such as
  /// bad_alloc) is rethrown after all have ended, because it must not leave an OpenMP thread.
  template <class Space>
  static void run_on(void const* space, std::uint64_t shares, std::uint64_t count, void const* context,
                     work f) {
    run_shares<Space>(space, shares, count, context, f);
  }
  template <class Space>
  static void run_shares(void const* space, std::uint64_t shares, std::uint64_t count, void const* context,
                         work f) {
    std::exception_ptr error;
    std::atomic_flag failed;
    auto const guarded = [&error, &failed, context, f](std::uint64_t first, std::uint64_t last) {
      try {
        for (std::uint64_t i = first; i < last; ++i) f(context, i);
      } catch (globalq::detail::forced_unwind const&) {
        throw;
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
      }
    };
    Kokkos::parallel_for("globalq",
                         Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>>(
                             *static_cast<Space const*>(space), 0, shares, Kokkos::ChunkSize(1)),
                         [&guarded, shares, count](std::uint64_t share) {
                           float_environment const exact;
                           std::uint64_t const first =
                               count / shares * share + std::min(share, count % shares);
                           guarded(first, first + count / shares + (share < count % shares ? 1 : 0));
                         });
    if (error) std::rethrow_exception(error);
  }

  void each(std::uint64_t count, void const* context, work f) const {
    if (count == 0) return;
    if (count == 1 ||
        globalq::detail::forked_from_kokkos) {  // a short vector: run here, without waking threads
      float_environment const exact;
      for (std::uint64_t i = 0; i < count; ++i) f(context, i);
      return;
    }
    run_(space_.get(), std::min(count, static_cast<std::uint64_t>(threads_)), count, context, f);
  }

  runner run_;
  std::shared_ptr<void const> space_;
  int threads_;
};

#if defined(GLOBALQ_COMPILED)
#if defined(KOKKOS_ENABLE_SERIAL)
template <>
host_executor::host_executor(Kokkos::Serial const&);
template <>
void host_executor::run_on<Kokkos::Serial>(void const*, std::uint64_t, std::uint64_t, void const*, work);
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
template <>
host_executor::host_executor(Kokkos::OpenMP const&);
template <>
void host_executor::run_on<Kokkos::OpenMP>(void const*, std::uint64_t, std::uint64_t, void const*, work);
#endif
#endif

namespace device {

/// The work of GPU thread i: its share of a tile, all rows at once or one by one.
template <int Lanes, int Rows, class Body>
struct thread_of_values {
  Body body;

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    constexpr std::uint64_t threads = 16 / Lanes;
    std::uint64_t const index = i / threads;
    int const lane = static_cast<int>(i % threads) * Lanes;
    if constexpr (requires { Body::device_lanes; })
      body.template share<Lanes, Rows>(index, lane);
    else
      body.template tile<Lanes>(index, lane);
  }
};

/// The work of one team: every league_size-th item.
template <class Body>
struct team_of_items {
  Body body;
  std::uint64_t count;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    std::size_t const bytes = Body::scratch_bytes;  // a local copy, because a reference to it is taken
    auto* const scratch = static_cast<std::byte*>(team.team_shmem().get_shmem_aligned(bytes, 16));
    auto const league = static_cast<std::uint64_t>(team.league_size());
    for (auto i = static_cast<std::uint64_t>(team.league_rank()); i < count; i += league) {
      body(team, i, scratch);
      team.team_barrier();
    }
  }
};

}  // namespace device

/// @throws configuration_error in a process that was forked while Kokkos was running
inline void expect_own_device() {
  if (globalq::detail::forked_from_kokkos)
    throw configuration_error(
        "globalq: this process was forked while Kokkos was running, so its streams cannot be used here; "
        "start it with exec (spawn in Python), or make calls in host memory");
}

/// Runs on a device space, one thread per share of a tile. It never waits for the device, so launches can be captured.
template <class Space>
class device_executor {
 public:
  explicit device_executor(Space const& space) : space_(running(space)) { expect_own_device(); }

  template <class Body>
  void values(std::uint64_t count, Body const& body) const {
    if constexpr (!requires { Body::device_lanes; }) {
      launch<2, 4>(count, body);
    } else if constexpr (requires { typename std::bool_constant<Body::fits_registers()>; }) {
      launch<Body::device_lanes, Body::fits_registers() ? 4 : 1>(count, body);
    } else {
      if constexpr (requires { Body::code_lanes; })
        if (!body.has_values()) return launch<Body::code_lanes, 4>(count, body);
      if constexpr (requires { body.fits_registers(); })
        if (!body.fits_registers()) return launch<Body::device_lanes, 1>(count, body);
      launch<Body::device_lanes, 4>(count, body);
    }
  }

  /// Calls f(i) for i in [0, count).
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    for_each<Kokkos::LaunchBounds<>>(count, f);
  }

  /// Calls body(team, i, scratch) for i in [0, count), each by a team of threads that shares Body::scratch_bytes.
  ///
  /// A team has Body::team_threads threads, or one if kernels run on the host. The optional Body::teams is the number
  /// of teams that a multiprocessor must hold, which bounds the registers. Only team.team_barrier() orders memory
  /// accesses; one follows each item.
  template <class Body>
  void teams(std::uint64_t count, Body const& body) const {
    if (count == 0) return;
    expect_own_device();
    constexpr bool on_host = static_cast<bool>(
        Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible);
    constexpr std::uint64_t most_teams = 1U << 20;
    constexpr unsigned resident = [] {
      if constexpr (requires { Body::teams; }) return static_cast<unsigned>(Body::teams);
      return 0U;
    }();
    // light weight: as in for_each()
    using policy = Kokkos::TeamPolicy<Space, Kokkos::LaunchBounds<Body::team_threads, resident>,
                                      Kokkos::Experimental::WorkItemProperty::HintLightWeight_t>;
    policy const teams =
        policy(space_, static_cast<int>(std::min(count, most_teams)), on_host ? 1 : Body::team_threads)
            .set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(Body::scratch_bytes) + 64));
    static_assert(fits_arguments<device::team_of_items<Body>>);
    Kokkos::parallel_for("globalq", teams, device::team_of_items<Body>{body, count});
  }

  /// Calls body(i, sum, final) for i in [0, count), as Kokkos::parallel_scan does: the body adds item i to the sum. If
  /// @c final is true, the sum before that is the sum of all items before i.
  template <class Body>
  void scan(std::uint64_t count, Body const& body) const {
    expect_own_device();
    Kokkos::parallel_scan(
        "globalq", Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>>(space_, 0, count), body);
  }

 private:
  template <int Lanes, int Rows, class Body>
  void launch(std::uint64_t count, Body const& body) const {
    constexpr int blocks = [] {
      if constexpr (requires { Body::blocks(Lanes, Rows); }) return Body::blocks(Lanes, Rows);
      return 2;
    }();
    for_each<Kokkos::LaunchBounds<256, blocks>>(divide_up<std::uint64_t>(count, tile_values) * (16 / Lanes),
                                                device::thread_of_values<Lanes, Rows, Body>{body});
  }

  /// Whether a kernel and the data that Kokkos adds fit the 4 KiB of arguments of a CUDA launch. Kokkos copies larger
  /// kernels first, which waits for the device and cannot be captured.
  template <class F>
  static constexpr bool fits_arguments = sizeof(F) <= 3840;

  template <class Bounds, class F>
  void for_each(std::uint64_t count, F const& f) const {
    static_assert(fits_arguments<F>);
    expect_own_device();
    // light weight: passed as arguments of the launch, even beyond 512 bytes
    Kokkos::parallel_for(
        "globalq",
        Kokkos::Experimental::require(
            Kokkos::RangePolicy<Space, Kokkos::IndexType<std::uint64_t>, Bounds>(space_, 0, count),
            Kokkos::Experimental::WorkItemProperty::HintLightWeight),
        f);
  }

  Space space_;
};

/// The part of a row of a tile that lies in [0, count): offset in the segment and number of values.
struct row {
  std::uint64_t first;
  int count;
};

/// Rows of a thread's share: one on a host thread, otherwise four of 4 * Lanes values.
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

/// Calls f(bucket, offset in the row, values) for each run of a row that lies in one bucket.
/// @param first  index of the row's first value in the vector
GLOBALQ_ANY_FUNCTION
template <class F>
GLOBALQ_FUNCTION void for_each_run(std::uint64_t first, int count, std::uint64_t bucket, F&& f) {
  // f is called in one place, so that it is inlined and compiled once
  std::uint64_t b = bucket == 0 ? 0 : first / bucket,
                left = bucket == 0 ? static_cast<std::uint64_t>(count) : (b + 1) * bucket - first;
  for (int at = 0; at < count;) {
    int const m = left < static_cast<std::uint64_t>(count - at) ? static_cast<int>(left) : count - at;
    f(b, at, m);
    at += m;
    ++b;
    left = bucket;
  }
}

}  // namespace GLOBALQ_ABI::kernel
