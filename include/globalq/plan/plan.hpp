// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: what a call will do and cost, asked before anything is sent.

#include "../core/detail/compiled.hpp"
#include "../operator/any_quantizer.hpp"
#include "../operator/detail/tail_codec.hpp"
#include "../schedule/concept.hpp"
#include "../schedule/detail/nodes.hpp"
#include "../schedule/detail/piece_sizes.hpp"
#include "../schedule/detail/units.hpp"
#include "../schedule/erased.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "../transport/concept.hpp"
#include "detail/bounds.hpp"

#include <cmath>
#include <map>

namespace GLOBALQ_ABI {

/// @brief The numbers of one call of an operator on a schedule.
struct plan {
  bool fits = false;
  std::string refusal;  ///< why not, with a remedy; empty when it fits
  int workers = 1;
  std::uint64_t length = 0;         ///< values
  method reduce = method::none;     ///< how codes are added
  std::uint32_t levels = 0;         ///< above zero; 0: none
  std::uint32_t headroom = 0;       ///< codes that the exponential reduce, or one of your own, keeps free
  std::uint64_t bytes_sent = 0;     ///< by the busiest worker: frames, headers, norms
  bool bytes_are_most = false;      ///< true where frames differ in length: no call sends more
  bool bytes_modeled = false;       ///< true for native: 2 S (n-1)/n, the library's own count is unknown
  double bits_per_value = 0;        ///< of one worker's frame of the whole vector, header and scales included
  int rounding_steps = 0;           ///< roundings on the longest way from a worker's value to the mean
  double theta = 0;                 ///< E||result - mean||^2 <= (theta / n) sum_i ||x_i||^2; NaN: no bound
  double iterations_factor = 1;     ///< 1 + n theta: growth of the iterations to a target
  std::size_t workspace_bytes = 0;  ///< frames held by one worker during a call, at most
};

namespace detail {

/// A codec of the right sizes that does nothing.
class counting_codec final : public codec {
 public:
  counting_codec(operator_facts const& op, std::uint32_t levels, dtype type)
      : op_(op), levels_(levels), type_(type) {}

  std::size_t frame_bytes(segment part, int) const override {
    if (part.empty()) return 0;
    if (op_.plain) return wire::header_bytes + 4 * part.count;
    if (!op_.centered) return quantized_bytes(part);
    std::uint64_t const last = part.first + part.count,
                        midpoints =
                            op_.center == 0 ? 1 : divide_up(last, op_.center) - part.first / op_.center;
    return paired_codec::bytes(op_.most_bytes != nullptr, quantized_bytes(part), midpoints);
  }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment part, std::span<std::byte>) const override {
    payload p;
    p.count = part.count;
    p.type = op_.plain ? payload::kind::float32
                       : (op_.wire_bits == 8    ? payload::kind::int8
                          : op_.wire_bits == 16 ? payload::kind::int16
                                                : payload::kind::int32);
    return p;
  }
  void declare(std::span<std::byte>, int) const override {}

 private:
  /// Without midpoints.
  std::size_t quantized_bytes(segment part) const {
    if (op_.plain_tail && part.count % op_.bucket != 0) {
      std::uint64_t const tail = part.count % op_.bucket;
      std::size_t const whole = tail == part.count ? 0 : quantized_bytes({part.first, part.count - tail});
      return paired_codec::bytes(op_.most_bytes != nullptr, whole, tail);
    }
    std::uint64_t const scales = !op_.local ? 0 : (op_.bucket == 0 ? 1 : divide_up(part.count, op_.bucket));
    if (op_.most_bytes != nullptr)
      return wire::long_header_bytes + wire::scale_section(scales, op_.q.format(type_)) +
             op_.most_bytes(part.count, levels_, op_.zero_free);
    std::uint64_t const bits = static_cast<std::uint64_t>(op_.wire_bits);
    return wire::header_bytes + wire::scale_section(scales, op_.q.format(type_)) + part.count / 8 * bits +
           divide_up<std::uint64_t>(part.count % 8 * bits, 8);
  }

  operator_facts const& op_;
  std::uint32_t levels_;
  dtype type_;
};

/// The frames of float32 sums in nodes; see entered_vectors.
class counting_sums final : public codec {
 public:
  std::size_t frame_bytes(segment part, int) const override {
    return part.empty() ? 0 : wire::padded(wire::header_bytes + 4 * part.count);
  }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}
};

using transport::default_chunk_bytes;

/// Values sent at a time; 0: whole segments.
///
/// The norm of a whole segment can't be known from a chunk: sums under local whole-vector norms are not cut.
/// @param wanted  by the caller; 0: as many as fill frames of @p bytes
GLOBALQ_DECL std::uint64_t chunk_of(operator_facts const& op, resolution const& r, std::uint64_t wanted,
                                    std::size_t bytes = default_chunk_bytes);

/// What travels of a bucket under a norm of one's own.
inline constexpr exchange_widths widths_of_own_norms{sizeof(own_statistic), sizeof(own_scale)};

/// f(buckets, widths) for each exchange of norms between the opening and the schedule: of buckets, and of vectors that are made
/// after the opening.
/// @param sums  whether nodes add before anything is encoded
template <class F>
void each_exchange(operator_facts const& op, std::uint64_t length, dtype type, bool sums, F const& f) {
  if (shares_scale(op)) f(std::uint64_t{1}, widths_of_units(dtype::float64));
  if (op.own_norm != nullptr && op.local) f(std::uint64_t{1}, widths_of_units(dtype::float64));
  bool const measured = !op.plain && !op.local && op.fixed_scale == 0;
  if (std::uint64_t const units = buckets_of(op, length);
      measured && units != 0 && (op.own_norm != nullptr || op.bucket != 0 || op.centered || sums))
    f(units, op.own_norm != nullptr ? widths_of_own_norms : widths_of_units(type));
}

/// Sends what a call sends between its opening and its schedule, over a transport that counts.
template <class S, class T>
void send_before(S const& schedule, T& t, operator_facts const& op, std::uint64_t length, dtype type,
                 std::size_t chunk_bytes, frame_pool& frames) {
  if constexpr (SumsInNodes<S>) {
    counting_sums sums;
    schedule.sum_in_node(t, sums, length, chunk_bytes / sizeof(float), frames);
  }
  each_exchange(op, length, type, SumsInNodes<S>,
                [&](std::uint64_t units, exchange_widths width) { count_exchange(t, units, width, frames); });
}

inline constexpr std::size_t record_bytes = 64;

/// Bytes of the opening: the records, and the norms of buckets as exchange_by_owners() exchanges them.
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

/// What a call sends before its schedule: the opening, and float32 sums in nodes where the schedule has such.
class call_bytes_before final : public schedule::detail::bytes_before {
 public:
  /// @param sizes  sizes(partition, parts): of the frames of these sums
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
    all.hold(schedule::detail::slot_sizes::shared, 1, sums.bytes());  // as if the schedule used other slots
    return all;
  }

 private:
  opening_bytes const& opening_;
  bool sums_;
  schedule::detail::node_map nodes_;
  std::map<int, schedule::detail::piece_sizes> of_size_;
};

/// Roundings on the way, theta and what follows from it.
GLOBALQ_DECL void add_errors(plan& p, operator_facts const& op, resolution const& r, schedule_facts const& s,
                             std::uint64_t length, std::vector<std::pair<int, int>> const& additions);

/// The most workers of a plan; it takes a few ns for each.
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

/// @brief What averaging vectors of @p length values would do and cost, without a transport.
/// @param op        a quantizer, any_quantizer or uncompressed
/// @param workers   n >= 1; thousands are fine
/// @returns         a plan; with fits == false and the reason when the policies do not work together, when there are fewer
///                  than 1 or more than 2^20 workers, and above 2^48 values
/// @complexity      O(n), some ns a worker; of no length, chunk or frame
template <class Operator, class S>
plan plan_for(Operator const& op, S const& schedule, int workers, std::uint64_t length,
              dtype type = dtype::float32, std::uint64_t chunk_values = 0) {
  return detail::make_plan(detail::facts_of(op), schedule, workers, length, type, chunk_values);
}

}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "plan-inl.hpp"
#endif
