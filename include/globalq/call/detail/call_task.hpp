// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: arguments of a call, on the host.

#include "../../schedule/erased.hpp"
#include "../vector_group.hpp"
#include "opening.hpp"
#include "setup.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace GLOBALQ_ABI::detail {

/// The vectors of a call and its arguments.
struct call_task {
  schedule::erased const& schedule;
  std::span<vector_group::member const> members;
  group_operators const& ops;
  std::uint64_t step;

  dtype type() const { return members.empty() ? dtype::float32 : members[0].x.type; }
  /// @p part for a single vector; the whole vector for a member of a group.
  segment of(std::size_t k, segment part) const {
    return ops.single_vector ? part : segment{0, members[k].length};
  }

  /// Whether another vector is encoded in place of the caller's; it is computed after the handshake.
  bool enters_other(operator_facts const& op) const { return schedule.sums_in_nodes || !op.chain.empty(); }
  bool enters_others() const {
    return std::any_of(ops.slots.begin(), ops.slots.end(),
                       [this](group_slot const& s) { return enters_other(*s.facts); });
  }

  /// How the handshake determines the scale of a single vector.
  scale_rule rule_of(operator_facts const& op) const {
    scale_rule rule(op, type());
    // the sum of the node has not been measured yet: determine its scale as for buckets
    rule.by_bucket = rule.by_bucket || (schedule.sums_in_nodes && op.has_codes() && rule.fixed_scale == 0);
    return rule;
  }
  /// Whether the records determine the scale of a vector.
  bool opening_has_norm(operator_facts const& op) const {
    return ops.single_vector && op.fixed_scale == 0 && !rule_of(op).by_bucket;
  }

  /// The properties of the call that do not depend on its vectors.
  codec_call common(int rank, int workers, std::uint64_t seed, decision const& d) const {
    codec_call c;
    c.rank = rank;
    if (schedule.sums_in_nodes) {
      schedule_facts const s = schedule.facts(workers);
      c.rank = schedule.node_of(rank, workers);
      c.average(s.vectors(workers));
      c.weight = s.weight(workers);
    } else if (schedule.averages) {
      c.average(workers);
    }
    c.seed = seed;
    c.step = step;
    c.wide = d.wide;
    c.top = d.top;
    return c;
  }

  /// A worker's value of a field of the agreement, for errors.
  std::string text(int field, call_setup const& setup, chunk_sizes const& sizes, int workers) const {
    switch (field) {
      case agreement::schedule:
        return schedule.facts(workers).name + (joined({" of ", workers, " workers"}));
      case agreement::seed:
        return std::to_string(setup.settings.seed);
      case agreement::mode:
        return mode_text(setup.settings.non_finite);
      case agreement::step:
        return std::to_string(ops.reported_step(step));
      case agreement::chunk:
        return sizes.text();
      case agreement::settings:
        return std::string(ops.settings);
      case agreement::what:
        return ops.of.empty() && !ops.slots.empty() ? ops.slots[0].facts->name
                                                    : joined({"those of ", members.size(), " layers"});
      default:
        break;
    }
    if (ops.single_vector) return name_of(type());
    std::string list = "a group of";
    for (auto const& m : members) list += joined({" ", m.length, " ", name_of(m.x.type)});
    return list;
  }
};

}  // namespace GLOBALQ_ABI::detail
