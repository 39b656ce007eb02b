// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: definitions of plan.hpp.

#include "plan.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::uint64_t chunk_of(operator_facts const& op, resolution const& r, std::uint64_t wanted,
                                    std::size_t bytes) {
  if (op.local && op.bucket == 0 && r.how == method::requantize) return 0;
  if (wanted != 0) return wanted;
  return 8 * std::uint64_t{bytes} / static_cast<std::uint64_t>(op.wire_bits);
}

GLOBALQ_DECL void add_errors(plan& p, operator_facts const& op, resolution const& r, schedule_facts const& s,
                             std::uint64_t length, std::vector<std::pair<int, int>> const& additions) {
  p.rounding_steps = 0;
  if (op.rounds() && !(op.plain_tail && length < op.bucket))
    p.rounding_steps = roundings_of(r.how, s, p.workers);
  p.theta = variance_bound(op, r, s, p.workers, length, additions);
  double const gain = expected_gain(op, r, s, s.vectors(p.workers));
  p.expected_theta = gain == 1 ? p.theta : variance_bound(op, r, s, p.workers, length, additions, gain);
  p.iterations_factor = 1 + p.workers * p.theta;
}

GLOBALQ_DECL plan make_plan(operator_facts const& op, schedule::erased const& schedule, int workers,
                            std::uint64_t length, dtype type, std::uint64_t chunk, std::size_t chunk_bytes) {
  plan p;
  p.workers = workers;
  p.length = length;
  schedule_facts s;
  try {
    if (workers < 1 || workers > most_planned)
      fail<configuration_error>({"globalq: plan: ", workers, " workers; use 1 to ", most_planned});
    expect_length(length, "plan");
    s = schedule.facts(workers);  // throws, for example if its nodes have another number of workers
  } catch (configuration_error const& e) {
    p.refusal = e.what();
    return p;
  }
  resolution const r = resolve(op, s, workers);
  p.refusal = r.refusal;
  p.fits = r.fits();
  p.reduce = r.how;
  if (!p.fits) return p;
  p.levels = r.size;
  p.headroom = r.headroom;
  int const parts = schedule.parts(workers);
  partition const cut(length, parts, grain_of(op), chunk_of(op, r, chunk, chunk_bytes));
  counting_codec c = counting(op, r.size, type);
  opening_bytes before(workers);
  each_exchange(op, length, type, schedule.sums_in_nodes,
                [&](std::uint64_t buckets, exchange_widths width) { before.add(buckets, width); });
  using schedule::detail::piece_sizes;
  auto const sums_of = [](partition const& pieces, int count) {
    return piece_sizes::of(pieces, count, counting_sums());
  };
  piece_sizes sizes = piece_sizes::of(cut, parts, c);
  if (op.of_sums != nullptr && workers > 1) sizes.set_sums(piece_sizes::of(cut, parts, c, 2));
  auto const most = schedule.busiest(
      workers, cut, c, sizes, call_bytes_before(schedule, workers, before, length, chunk_bytes, sums_of));
  p.bytes_sent = most.sent;
  p.workspace_bytes = most.held;
  p.bytes_modeled = s.native;
  p.bytes_are_most = op.most_bytes != nullptr;
  if (length > 0)
    p.bits_per_value = 8.0 * static_cast<double>(c.frame_bytes({0, length}, 1)) / static_cast<double>(length);
  add_errors(p, op, r, s, length,
             op.rounds() && needs_additions(r, s, s.vectors(workers)) ? schedule.additions(workers)
                                                                      : std::vector<std::pair<int, int>>());
  return p;
}

}  // namespace GLOBALQ_ABI::detail
