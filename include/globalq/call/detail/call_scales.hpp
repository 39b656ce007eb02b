// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the norms and scales of the vectors of a call over a host-memory transport.

#include "../../kernel/reduction.hpp"
#include "../../telemetry/detail/call_meter.hpp"
#include "../../transport/endpoint.hpp"
#include "call_task.hpp"
#include "grouped_codec.hpp"
#include "opening.hpp"
#include "setup.hpp"
#include "shared_norms.hpp"

namespace GLOBALQ_ABI::detail {

/// Where the vectors of a call are, their statistics, and the scales of their buckets, in memory that the next call reuses.
class call_scales {
 public:
  call_scales(transport::endpoint& workers, call_setup const& setup, kernel::host_executor const& on,
              call_meter& meter)
      : workers_(workers),
        setup_(setup),
        on_(on),
        meter_(meter),
        own_(setup.make_user_scales == nullptr ? nullptr : setup.make_user_scales()) {}

  void place(call_task const& t) {
    places_.place(t.members, t.ops);
    if (statistics_.size() < places_.buckets()) statistics_.resize(places_.buckets());
  }
  group_places const& places() const { return places_; }

  /// Computes the statistics of the buckets of vector @p k.
  /// @param x     the vector to encode, or the caller's
  /// @param part  the part that this worker contributes; begins at a bucket. Other buckets get the statistics of zeros
  /// @param q     order of the norm
  void measure(call_task const& t, std::size_t k, const_vector x, segment part, std::uint32_t q) {
    auto const timed = meter_.enter(phase::norm);
    operator_facts const& op = t.ops.facts(k);
    std::span<norm::statistic> const mine = of(t, k);
    if (part.count != t.members[k].length) std::fill(mine.begin(), mine.end(), norm::statistic{});
    norm::bucket_statistics(
        on_, part.count, op.bucket, q, norm::input_block{at(x, part.first), q},
        mine.subspan(op.bucket == 0 ? 0 : part.first / op.bucket, buckets_of(op, part.count)), parts_);
  }
  /// Sets the statistics of vector @p k to those of zeros.
  void forget(call_task const& t, std::size_t k) {
    std::span<norm::statistic> const mine = of(t, k);
    std::fill(mine.begin(), mine.end(), norm::statistic{});
  }

  /// The statistic of the first bucket.
  norm::statistic const& first() const { return statistics_[0]; }
  /// max_bits of all buckets.
  std::uint64_t top() const {
    std::uint64_t most = 0;
    for (std::uint64_t b = 0; b < places_.buckets(); ++b) most = std::max(most, statistics_[b].max_bits);
    return most;
  }
  /// The largest value of vector @p k, divided by the scale of norm::fixed.
  double share_of_scale(call_task const& t, std::size_t k) {
    double share = 0;
    for (norm::statistic const& s : of(t, k))
      if (s.finite()) share = std::max(share, s.max() / t.ops.facts(k).fixed_scale);
    return share;
  }

  /// Computes the scales of all buckets, in units of 2^wide, and exchanges those that workers share.
  /// @param members  with the vectors to encode
  /// @param encodes  whether this worker encodes its own values
  void scale(call_task const& t, std::span<vector_group::member const> members, segment brought, bool encodes,
             decision const& d, frame_pool& frames) {
    if (scales_.size() < places_.buckets()) scales_.resize(places_.buckets());
    // reserve for scale_floats() too, which a later call may need
    shared_.clear(members.size(),
                  t.ops.single_vector ? 0 : std::max<std::uint64_t>(places_.buckets(), members.size()));
    tops_.reserve(members.size());
    floats_.reserve(members.size());
    vectors_.resize(members.size());
    if (own_) own_->clear();
    for (std::size_t k = 0; k < members.size(); ++k) {
      operator_facts const& op = t.ops.facts(k);
      std::span<norm::statistic const> const mine = of(t, k);
      std::span<double> const scales = std::span(scales_).subspan(places_.first_bucket(k), mine.size());
      if (!op.has_codes() || mine.empty()) continue;
      if (t.opening_has_norm(op)) {
        scales[0] = d.scale;
        continue;
      }
      if (op.user_norm != nullptr) {
        auto const timed = meter_.enter(phase::norm);
        own_->add(on_, op, members[k].x, encodes ? t.of(k, brought) : segment{}, scales,
                  op.local ? members[k].x.type : members[k].y.type, d.wide);
        continue;
      }
      dtype const type = members[k].x.type;
      for (std::size_t b = 0; b < mine.size(); ++b) scales[b] = own_scale(op, mine[b], type, d);
      if (op.q.format(type).two_level()) vectors_[k] = norm::settle_two_levels(scales, op.q.format(type));
      if (op.shares_norm()) shared_.add(op.p, members[k].y.type, scales);
    }
    exchange(frames);
    if (!own_ || own_->empty()) return;
    auto const timed = meter_.enter(phase::opening);
    own_->exchange(workers_, setup_.operation, frames);
  }

  /// Computes the scales of the floats of each vector: none if no vector needs one. Then, and for a single vector,
  /// nothing is exchanged.
  /// @param kept  residuals, which enter before floats beside codes are encoded
  void scale_floats(call_task const& t, decision const& d, residuals const& kept, frame_pool& frames) {
    floats_.clear();
    shared_.clear();
    int const n = workers_.size();
    auto const scale_of = [&](std::size_t k, double top) {
      dtype const type = t.members[k].x.type;
      operator_facts const& op = t.ops.facts(k);
      return top == 0 ? float_scale{}
                      : float_scale_of(top_of(op.chain, top, op.chain.size(), type), n, type, op.floats.type);
    };
    auto const needs_scale = [n](double top, dtype sent = dtype::float32) {
      float_scale const most = float_scale_of(top, n, dtype::float64, sent);
      return most.divisor != 1 || most.wide != 0;
    };
    bool needs = needs_scale(d.top);
    for (group_slot const& slot : t.ops.slots)
      needs = needs || scales_each_vector(*slot.facts) ||
              needs_scale(top_of(slot.facts->chain, d.top, slot.facts->chain.size(), t.type()),
                          slot.facts->floats.type);
    if (!needs) return;
    tops_.assign(t.members.size(), t.ops.single_vector ? d.top : 0.0);
    for (std::size_t k = 0; k < tops_.size() && !t.ops.single_vector; ++k) {
      operator_facts const& op = t.ops.facts(k);
      for (norm::statistic const& s : of(t, k)) tops_[k] = std::max(tops_[k], s.max());
      if (feedback_options const* const options = feedback_of(op.chain))
        tops_[k] = kept.with(tops_[k], k, *options, t.ops.reported_step(t.step), t.members[k].x.type);
      if (op.sends_floats() || t.schedule.sums_in_nodes)
        shared_.add(infinity, t.members[k].x.type, std::span(tops_).subspan(k, 1));
    }
    exchange(frames);
    for (std::size_t k = 0; k < tops_.size(); ++k) floats_.push_back(scale_of(k, tops_[k]));
  }

  group_scales all() const { return {scales_, floats_, vectors_}; }

 private:
  std::span<norm::statistic> of(call_task const& t, std::size_t k) {
    return std::span(statistics_)
        .subspan(places_.first_bucket(k), buckets_of(t.ops.facts(k), t.members[k].length));
  }

  /// The scale of a bucket from this worker's statistics, in units of 2^wide.
  static double own_scale(operator_facts const& op, norm::statistic const& s, dtype type, decision const& d) {
    return op.fixed_scale > 0 ? rounded(op.fixed_scale * power_of_two(-d.wide))
                              : norm::local_scale(s, op.q, type, d.wide);
  }

  void exchange(frame_pool& frames) {
    if (shared_.empty()) return;
    auto const timed = meter_.enter(phase::opening);
    shared_.exchange(workers_, frames);
  }

  transport::endpoint& workers_;
  call_setup const& setup_;
  kernel::host_executor on_;
  call_meter& meter_;
  group_places places_;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> scales_, tops_, vectors_;
  std::vector<float_scale> floats_;
  shared_norms shared_;
  std::unique_ptr<user_scales> own_;  ///< null: no norm is a user's type
};

}  // namespace GLOBALQ_ABI::detail
