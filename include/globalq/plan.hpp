// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: what a call will do and cost, asked before anything is sent.

#include "detail/bounds.hpp"
#include "detail/entered.hpp"
#include "detail/tail_codec.hpp"
#include "detail/units.hpp"
#include "quantizer.hpp"
#include "schedule/concept.hpp"

#include <cmath>

namespace globalq {

/// @brief The numbers of one call of an operator on a schedule.
struct plan {
  bool fits = false;
  std::string refusal;  ///< why not, with a remedy; empty when it fits
  int workers = 1;
  std::uint64_t length = 0;      ///< values
  method reduce = method::none;  ///< how codes are added
  std::uint32_t levels = 0;      ///< above zero; 0: none
  std::uint32_t headroom = 0;    ///< codes that the exponential reduce keeps free
  std::uint64_t bytes_sent = 0;  ///< by the busiest worker: frames, headers, norms
  bool bytes_are_most = false;   ///< true where frames differ in length: no call sends more
  bool bytes_modelled = false;   ///< true for native: 2 S (n-1)/n, the library's own count is unknown
  double bits_per_value = 0;     ///< of one worker's frame of the whole vector, header and scales included
  int rounding_steps = 0;        ///< roundings on the longest way from a worker's value to the mean
  double theta = 0;              ///< E||result - mean||^2 <= theta/n * (1/n) sum ||x_i||^2 * n; NaN: no bound
  double iterations_factor = 1;  ///< 1 + n theta: growth of the iterations to a target
  std::size_t workspace_bytes = 0;  ///< frames held by one worker during a call
};

namespace detail {

/// A transport that only counts what is sent.
class counting_transport {
 public:
  struct request {};
  counting_transport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  request send_async(int, std::span<std::byte const> b) {
    bytes_ += b.size();
    return {};
  }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}
  template <class Lane>
  void allreduce_sum(std::span<Lane> lanes) {
    bytes_ +=
        lanes.size_bytes() * 2 * static_cast<std::uint64_t>(size_ - 1) / static_cast<std::uint64_t>(size_);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  int rank_, size_;
  std::uint64_t bytes_ = 0;
};

/// A codec of the right sizes that does nothing.
class counting_codec final : public codec {
 public:
  counting_codec(operator_facts const& op, std::uint32_t levels, dtype type)
      : op_(op), levels_(levels), type_(type) {}

  std::size_t frame_bytes(segment part, int) const override {
    if (part.empty()) return 0;
    if (op_.plain) return wire::header_bytes + 4 * part.count;
    if (!op_.centred) return quantised_bytes(part);
    std::uint64_t const last = part.first + part.count,
                        midpoints =
                            op_.centre == 0 ? 1 : divide_up(last, op_.centre) - part.first / op_.centre;
    return paired_codec::bytes(op_.most_bytes != nullptr, quantised_bytes(part), midpoints);
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
  std::size_t quantised_bytes(segment part) const {
    if (op_.plain_tail && part.count % op_.bucket != 0) {
      std::uint64_t const tail = part.count % op_.bucket;
      std::size_t const whole = tail == part.count ? 0 : quantised_bytes({part.first, part.count - tail});
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
    return part.empty() ? 0 : grouped_codec::padded(wire::header_bytes + 4 * part.count);
  }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}
};

/// Bytes of a frame where neither the caller nor the transport names a number: in memory that workers share, shorter ones
/// cost up to a tenth of the time, longer ones no longer fit a cache.
inline constexpr std::size_t default_chunk_bytes = std::size_t{256} << 10;

/// Values sent at a time; 0: whole segments.
///
/// The norm of a whole segment can't be known from a chunk: sums under local whole-vector norms are not cut.
/// @param wanted  by the caller; 0: as many as fill frames of @p bytes
inline std::uint64_t chunk_of(operator_facts const& op, resolution const& r, std::uint64_t wanted,
                              std::size_t bytes = default_chunk_bytes) {
  if (op.local && op.bucket == 0 && r.how == method::requantise) return 0;
  if (wanted != 0) return wanted;
  return 8 * std::uint64_t{bytes} / (op.plain ? 32U : static_cast<std::uint64_t>(op.wire_bits));
}

/// Norms that are exchanged after the opening records: of buckets, and of vectors that are made after it.
/// @param sums  whether nodes add before anything is encoded
inline std::uint64_t exchanged_units(operator_facts const& op, std::uint64_t length, bool sums) {
  if (op.plain || op.local || op.fixed_unit > 0) return 0;
  return op.bucket != 0 || op.centred || sums ? buckets_of(op, length) : 0;
}

/// Sends what a call sends between its opening and its schedule, over a transport that counts.
template <class S, class T>
void send_before(S const& schedule, T& t, operator_facts const& op, std::uint64_t length, dtype type,
                 std::size_t chunk_bytes, frame_pool& frames) {
  double* const no_values = nullptr;
  if constexpr (SumsInNodes<S>) {
    counting_sums sums;
    schedule.sum_in_node(t, sums, length, chunk_bytes / sizeof(float), frames);
  }
  if (op.centred && op.fixed_unit > 0)
    agree_on_units(t, std::span<double>(no_values, 1), infinity, dtype::float64, frames);
  if (std::uint64_t const units = exchanged_units(op, length, SumsInNodes<S>); units != 0)
    agree_on_units(t, std::span<double>(no_values, units), op.p, type, frames);
}

inline constexpr std::size_t record_bytes = 64;

template <class S>
plan make_plan(operator_facts const& op, std::vector<double> const& magnitudes, S const& schedule,
               int workers, std::uint64_t length, dtype type, std::uint64_t chunk,
               std::size_t chunk_bytes = default_chunk_bytes) {
  plan p;
  p.workers = workers;
  p.length = length;
  schedule_facts const s = schedule.facts(workers);
  resolution const r = resolve(op, s, workers);
  p.refusal = r.refusal;
  p.fits = r.fits();
  p.reduce = r.how;
  if (!p.fits) return p;
  p.levels = r.size;
  p.headroom = r.headroom;
  layout const cut(length, schedule.parts(workers), grain_of(op), chunk_of(op, r, chunk, chunk_bytes));
  for (int rank = 0; rank < workers; ++rank) {
    counting_transport t(rank, workers);
    counting_codec c(op, r.size, type);
    frame_pool frames = frame_pool::counting();
    send_before(schedule, t, op, length, type, chunk_bytes, frames);
    schedule(t, c, cut, frames);
    p.bytes_sent = std::max(p.bytes_sent, t.bytes() + record_bytes * static_cast<std::uint64_t>(workers - 1));
    p.workspace_bytes = std::max(p.workspace_bytes, frames.bytes());
    if (workers > 1024 && rank == 2) rank = workers - 3;  // asking some is enough for planning: see plan_for
  }
  p.bytes_modelled = s.native;
  p.bytes_are_most = op.most_bytes != nullptr;
  if (length > 0)
    p.bits_per_value = 8.0 *
                       static_cast<double>(counting_codec(op, r.size, type).frame_bytes({0, length}, 1)) /
                       static_cast<double>(length);
  p.rounding_steps = 0;
  if (!op.plain && !(op.plain_tail && length < op.bucket)) {
    p.rounding_steps = 1;
    int const vectors = s.vectors(workers);
    if (vectors > 1 && r.how == method::requantise)
      p.rounding_steps = s.roundings != 0 ? s.roundings : (s.one_addition ? 2 : 1 + s.height);
    if (vectors > 1 && r.how == method::exponential) p.rounding_steps = 1 + s.height;
  }
  p.theta = variance_bound(op, r, s, workers, length, magnitudes, schedule.additions(workers));
  p.iterations_factor = 1 + workers * p.theta;
  return p;
}

}  // namespace detail

/// @brief What averaging vectors of @p length values would do and cost, without a transport.
/// @param op        a quantizer, any_quantizer or uncompressed
/// @param workers   n >= 1; thousands are fine
/// @returns         a plan; with fits == false and the reason when the policies do not work together
/// @complexity      O(n log n) for tree, O(n) messages counted a worker otherwise
template <class Operator, class S>
plan plan_for(Operator const& op, S const& schedule, int workers, std::uint64_t length,
              dtype type = dtype::float32, std::uint64_t chunk_values = 0) {
  return detail::make_plan(detail::facts_of(op), detail::magnitudes(op), schedule, workers, length, type,
                           chunk_values);
}

}  // namespace globalq
