// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: the steps, bytes and variance bound of a call, computed before anything is sent.

#include "../core/detail/compiled.hpp"
#include "../operator/any_quantizer.hpp"
#include "../operator/detail/frame_format.hpp"
#include "../schedule/concept.hpp"
#include "../schedule/detail/nodes.hpp"
#include "../schedule/detail/piece_sizes.hpp"
#include "../schedule/detail/scales.hpp"
#include "../schedule/erased.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "../transport/concept.hpp"
#include "detail/bounds.hpp"

#include <cmath>
#include <functional>
#include <map>

namespace GLOBALQ_ABI {

/// @brief The plan of one call of an operator on a schedule.
struct plan {
  bool fits = false;    ///< whether the policies work together
  std::string refusal;  ///< the error with a remedy; empty if the policies fit
  int workers = 1;
  std::uint64_t length = 0;      ///< values
  method reduce = method::none;  ///< the reduce method
  std::uint32_t levels = 0;      ///< levels above zero; 0: none
  std::uint32_t headroom = 0;    ///< codes that the exponential or a user-defined reduce keeps free
  std::uint64_t bytes_sent = 0;  ///< by the busiest worker: frames, headers, norms
  bool bytes_are_most = false;   ///< bytes_sent is an upper bound, because frames vary in length
  bool bytes_modeled = false;    ///< true for native: 2 S (n-1)/n; the transport's actual count is unknown
  double bits_per_value = 0;     ///< of one worker's frame of the whole vector, header and scales included
  int rounding_steps = 0;        ///< roundings on the longest path from a worker's value to the mean
  double theta = 0;              ///< E||result - mean||^2 <= (theta / n) sum_i ||x_i||^2; NaN: no bound
  /// theta with the gain of a rounding that is correlated between workers, for independent vectors under a norm of all
  /// workers; else theta. No bound: fractions of gaps are taken as uniform.
  double expected_theta = 0;
  double iterations_factor = 1;     ///< 1 + n theta: bounds the growth of iterations to a target
  std::size_t workspace_bytes = 0;  ///< frames held by one worker during a call, at most
};

namespace detail {

/// A codec that only computes the sizes of frames.
class counting_codec final : public codec {
 public:
  explicit counting_codec(std::function<std::size_t(segment, int terms)> bytes,
                          payload::kind numbers = payload::kind::none)
      : bytes_(std::move(bytes)), numbers_(numbers) {}

  std::size_t frame_bytes(segment part, int terms) const override { return bytes_(part, terms); }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment part, std::span<std::byte>) const override {
    return {numbers_, nullptr, part.count};
  }
  void declare(std::span<std::byte>, int) const override {}

 private:
  std::function<std::size_t(segment, int terms)> bytes_;
  payload::kind numbers_;
};

/// The frames of an operator.
inline counting_codec counting(operator_facts const& op, std::uint32_t levels, dtype type) {
  frame_format const format(op, levels);
  return counting_codec([format, type](segment part, int terms) { return format.bytes(part, type, terms); },
                        format.numbers());
}

/// The frames of float32 sums within nodes; see entered_vectors.
inline counting_codec counting_sums() {
  return counting_codec([](segment part, int) { return wire::padded(floats_format{}.bytes(part.count)); });
}

using transport::default_chunk_bytes;

/// Values of a chunk; 0: whole segments.
///
/// Sums under local norms of the whole vector are not divided into chunks, as they need the norm of the segment.
/// @param wanted  the caller's choice; 0: as many as fill frames of @p bytes
GLOBALQ_DECL std::uint64_t chunk_of(operator_facts const& op, resolution const& r, std::uint64_t wanted,
                                    std::size_t bytes = default_chunk_bytes);

/// Bytes exchanged per bucket under a user-defined norm.
inline constexpr exchange_widths widths_of_user_norms{sizeof(user_statistic), sizeof(user_scale)};

/// Calls f(buckets, widths) for each exchange of norms between the handshake and the schedule: norms of buckets, and of
/// vectors that are computed after the handshake.
/// @param sums  whether nodes add before encoding
template <class F>
void each_exchange(operator_facts const& op, std::uint64_t length, dtype type, bool sums, F const& f) {
  if (shares_scale(op)) f(std::uint64_t{1}, widths_of_scales(dtype::float64));
  if (op.user_norm != nullptr && op.local) f(std::uint64_t{1}, widths_of_scales(dtype::float64));
  if (std::uint64_t const buckets = buckets_of(op, length);
      op.shares_norm() && buckets != 0 &&
      (op.user_norm != nullptr || op.bucket != 0 || !op.chain.empty() || sums))
    f(buckets, op.user_norm != nullptr ? widths_of_user_norms : widths_of_scales(type));
}

/// Performs the exchanges of a call between its handshake and its schedule, over a transport that counts bytes.
template <class S, class T>
void send_before(S const& schedule, T& t, operator_facts const& op, std::uint64_t length, dtype type,
                 std::size_t chunk_bytes, frame_pool& frames) {
  if constexpr (SumsInNodes<S>) {
    counting_codec sums = counting_sums();
    schedule.sum_in_node(t, sums, length, chunk_bytes / sizeof(float), frames);
  }
  each_exchange(op, length, type, SumsInNodes<S>, [&](std::uint64_t buckets, exchange_widths width) {
    count_exchange(t, buckets, width, frames);
  });
}

inline constexpr std::size_t record_bytes = 64;

/// Bytes of the handshake: the records, and the norms of buckets as exchanged by exchange_by_owners().
struct opening_bytes final : schedule::detail::bytes_before {
  explicit opening_bytes(int workers) : workers_(workers) {}

  void add(std::uint64_t buckets, exchange_widths width) {
    if (workers_ > 1) exchanges_.emplace_back(buckets, width);
  }

  std::uint64_t sent(int rank) const override {
    std::uint64_t bytes = record_bytes * others();
    for (auto const& [buckets, width] : exchanges_) {
      std::uint64_t const own = own_of(buckets, rank);
      bytes += width.known * (buckets - own) + width.follows * others() * own;
    }
    return bytes;
  }
  schedule::detail::slot_sizes slots(int rank) const override {
    schedule::detail::slot_sizes all;
    for (auto const& [buckets, width] : exchanges_) {
      all.hold(0, 1, width.known * (others() + 1) * own_of(buckets, rank));
      all.hold(1, 1, width.known * buckets);
      all.hold(2, 1, width.follows * buckets);
    }
    return all;
  }

 private:
  std::uint64_t others() const { return static_cast<std::uint64_t>(workers_ - 1); }
  std::uint64_t own_of(std::uint64_t buckets, int rank) const {
    return partition(buckets, workers_, 1, 0).part(rank).count;
  }

  int workers_;
  std::vector<std::pair<std::uint64_t, exchange_widths>> exchanges_;
};

/// Bytes of a call before its schedule: the handshake, and float32 sums within nodes if the schedule has them.
class call_bytes_before final : public schedule::detail::bytes_before {
 public:
  /// @param sizes  sizes(partition, parts) returns the sizes of the frames of these sums
  template <class Sizes>
  call_bytes_before(schedule::erased const& schedule, int workers, opening_bytes const& opening,
                    std::uint64_t length, std::size_t chunk_bytes, Sizes const& sizes)
      : opening_(opening), sums_(schedule.sums_in_nodes) {
    if (!sums_) return;
    nodes_ = schedule.nodes_among(workers);
    for (int size : nodes_.sizes)
      if (!of_size_.contains(size))
        of_size_.emplace(
            size, sizes(partition(length, size, random::tile_values, chunk_bytes / sizeof(float)), size));
  }

  std::uint64_t sent(int rank) const override {
    if (!sums_) return opening_.sent(rank);
    int const node = nodes_.node_of(rank), size = nodes_.size(node);
    return opening_.sent(rank) +
           schedule::scatter_reduce_allgather::sent(of_size_.at(size), size, rank - nodes_.leader(node));
  }
  schedule::detail::slot_sizes slots(int rank) const override {
    schedule::detail::slot_sizes all = opening_.slots(rank), sums;
    if (!sums_) return all;
    int const node = nodes_.node_of(rank), size = nodes_.size(node);
    schedule::scatter_reduce_allgather::hold(of_size_.at(size), size, rank - nodes_.leader(node), sums);
    all.hold(schedule::detail::slot_sizes::shared, 1, sums.bytes());  // the schedule uses other slots
    return all;
  }

 private:
  opening_bytes const& opening_;
  bool sums_;
  schedule::detail::node_map nodes_;
  std::map<int, schedule::detail::piece_sizes> of_size_;
};

/// Computes rounding_steps, theta and iterations_factor.
GLOBALQ_DECL void add_errors(plan& p, operator_facts const& op, resolution const& r, schedule_facts const& s,
                             std::uint64_t length, std::vector<std::pair<int, int>> const& additions);

/// The most workers of a plan, which takes a few ns for each.
inline constexpr int most_planned = 1 << 20;

GLOBALQ_DECL plan make_plan(operator_facts const& op, schedule::erased const& schedule, int workers,
                            std::uint64_t length, dtype type, std::uint64_t chunk,
                            std::size_t chunk_bytes = default_chunk_bytes);

template <class S>
requires(!std::is_base_of_v<schedule::erased, S>) plan
    make_plan(operator_facts const& op, S const& of, int workers, std::uint64_t length, dtype type,
              std::uint64_t chunk, std::size_t chunk_bytes = default_chunk_bytes) {
  return make_plan(op, schedule::erased_as<S const&, false>(of), workers, length, type, chunk, chunk_bytes);
}

}  // namespace detail

/// @brief The plan of averaging vectors of @p length values, without a transport.
/// @param op        a quantizer, floats or any_quantizer
/// @param workers   n >= 1; may be thousands
/// @returns         a plan; with fits == false and a refusal when the policies do not work together, for fewer than 1
///                  or more than 2^20 workers, and above 2^48 values
/// @complexity      O(n), a few ns per worker; independent of length and chunks
template <class Operator, class S>
plan plan_for(Operator const& op, S const& schedule, int workers, std::uint64_t length,
              dtype type = dtype::float32, std::uint64_t chunk_values = 0) {
  return detail::make_plan(detail::facts_of(op), schedule, workers, length, type, chunk_values);
}

}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "plan-inl.hpp"
#endif
