// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the handshake of a call over a host-memory transport: each worker measures its vectors, and all compare what they do.

#include "call_scales.hpp"

#include <cstring>

namespace GLOBALQ_ABI::detail {

/// The first exchange of a call.
class handshake {
 public:
  handshake(transport::endpoint& workers, call_setup const& setup, call_meter& meter)
      : workers_(workers), setup_(setup), meter_(meter) {}

  /// Computes statistics, and decides with all workers what the call does.
  /// @param brought  the part of a single vector that this worker contributes
  /// @param kept     residuals, which the values that are encoded contain too
  /// @param records  of all workers, in memory that outlives an abandoned call
  /// @throws disagreement_error; configuration_error if a value exceeds its fixed scale
  decision operator()(call_task const& t, call_scales& scales, segment brought, chunk_sizes const& sizes,
                      residuals const& kept, std::vector<opening_record>& records) const {
    std::uint64_t lists = hash(t.ops.grouping, t.members.size()), values = 0;
    double share = 0;  // largest value divided by its fixed scale
    for (std::size_t k = 0; k < t.members.size(); ++k) {
      auto const& m = t.members[k];
      operator_facts const& op = t.ops.facts(k);
      scales.measure(t, k, m.x, t.of(k, brought),
                     t.enters_other(op) ? infinity : call_setup::inner_order_of(op));
      lists = hash(hash(lists, m.length), static_cast<std::uint64_t>(m.x.type));
      values += m.length;
      if (op.fixed_scale > 0 && !shares_scale(op) && !t.ops.single_vector)
        share = std::max(share, scales.share_of_scale(t, k));
    }
    std::uint64_t const top = with_residuals(scales.top(), t, kept);
    if (t.ops.single_vector) {
      operator_facts const& op = t.ops.facts(0);
      bool const whole =
          !t.enters_other(op) && scales.places().buckets() == 1 && scales.first().max_bits < double_infinity;
      std::uint32_t const q = call_setup::inner_order_of(op);
      return agree(t, 0, values, sizes, top, whole ? norm::relative_norm(scales.first(), q) : 0.0,
                   t.rule_of(op), records);
    }
    // every vector has a bucket at least; the records carry the share of fixed scales, and no scale is common to all
    // vectors
    scale_rule rule(operator_facts{}, t.type());
    rule.by_bucket = true;
    decision const d = agree(t, hash(lists, std::uint64_t{1}), values, sizes, top, share, rule, records);
    for (opening_record const& r : records) share = std::max(share, r.statistic);
    if (d.what == call_status::mean && share > 1)
      throw configuration_error(beyond_scale_text(setup_.operation, share));
    return d;
  }

 private:
  /// The bound of all vectors together with their residuals, as the bits of a double.
  static std::uint64_t with_residuals(std::uint64_t top, call_task const& t, residuals const& kept) {
    if (top >= double_infinity) return top;
    double largest = 0;
    std::memcpy(&largest, &top, sizeof top);
    double const alone = largest;
    for (std::size_t k = 0; k < t.members.size(); ++k)
      if (feedback_options const* const options = feedback_of(t.ops.facts(k).chain))
        largest = std::max(largest,
                           kept.with(alone, k, *options, t.ops.reported_step(t.step), t.members[k].x.type));
    return bits_of(largest);
  }

  /// @param grouping  0, or a hash of the group's lengths and types
  decision agree(call_task const& t, std::uint64_t grouping, std::uint64_t values, chunk_sizes const& sizes,
                 std::uint64_t top, double relative, scale_rule const& rule,
                 std::vector<opening_record>& records) const {
    int const n = workers_.size();
    auto const timed = meter_.enter(phase::opening);
    agreement agreed(t.type(), t.ops.hash, setup_.schedule_hash, n, sizes, setup_.settings.seed,
                     setup_.settings.non_finite, values);
    if (grouping != 0) agreed.fields[agreement::type] = hash(agreed.fields[agreement::type], grouping);
    agreed.fields[agreement::settings] = hash(0, t.ops.settings);
    records.resize(static_cast<std::size_t>(n));
    auto const mine = std::span(records).subspan(static_cast<std::size_t>(workers_.rank()), 1);
    mine[0] = agreed.record(t.ops.reported_step(t.step), top, relative);
    transport::allgather(workers_, std::as_bytes(mine), std::as_writable_bytes(std::span(records)));
    check_agreement(workers_, records, setup_.operation, setup_.forced,
                    [&](int field) { return t.text(field, setup_, sizes, n); });
    return decide(records.data(), n, rule);
  }

  transport::endpoint& workers_;
  call_setup const& setup_;
  call_meter& meter_;
};

}  // namespace GLOBALQ_ABI::detail
