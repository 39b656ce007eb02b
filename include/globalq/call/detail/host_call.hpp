// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: a call over a host-memory transport; the calling thread decides and communicates.

#include "../../kernel/reduction.hpp"
#include "../../operator/any_quantizer.hpp"
#include "../../schedule/erased.hpp"
#include "../../telemetry/detail/call_meter.hpp"
#include "../../telemetry/detail/metered_codec.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "../../transport/endpoint.hpp"
#include "../call_queue.hpp"
#include "call_task.hpp"
#include "entered.hpp"
#include "grouped_codec.hpp"
#include "opening.hpp"
#include "rounding_errors.hpp"
#include "setup.hpp"
#include "shared_norms.hpp"
#include "used_steps.hpp"

namespace GLOBALQ_ABI::detail {

/// The calls of one operator over one transport, with the memory that they reuse.
class host_call {
 public:
  using executor = kernel::host_executor;

  host_call(transport::endpoint& workers, call_setup const& setup, executor const& on,
            std::unique_ptr<operator_codec> codec)
      : workers_(workers),
        setup_(setup),
        on_(on),
        codec_(std::move(codec)),
        meter_(setup.settings.telemetry),
        entered_(on),
        own_scales_(setup.make_own_scales == nullptr ? nullptr : setup.make_own_scales()),
        memory_(std::make_shared<workspace>()) {}

  /// Runs one call.
  /// @param members  a group, or one vector (see group_operators::single_vector); vector k draws the random bits of
  ///                 step + k
  /// @param reported  the step that messages name, if it is another one
  void run(schedule::erased const& schedule, std::span<vector_group::member const> members,
           bool single_vector, std::uint64_t step, std::uint64_t reported = group_operators::unnamed) {
    group_slot const own{&setup_.facts, codec_.get()};
    run(schedule, members,
        {{&own, 1},
         {},
         hash(setup_.operator_hash, setup_.facts.levels),
         grain_of(setup_.facts),
         setup_.chunk_values(),
         0,
         reported,
         single_vector},
        step);
  }

  /// As above, with the group's own operators.
  void run(schedule::erased const& schedule, std::span<vector_group::member const> members,
           group_operators const& ops, std::uint64_t step) {
    if (ops.round()) {
      std::string const why = used_.refusal(step, members.size(), ops.reported_step(step));
      if (!why.empty()) refuse(why);
    }
    std::uint64_t values = 0;
    for (auto const& m : members) values += m.length;
    meter_.watch(workers_, setup_.operation, ops.reported_step(step), values, !ops.round(), [&] {
      guarded([&] { informing(workers_, [&] { exchange({schedule, members, ops, step}); }); });
    });
  }

  /// Handles a call whose arguments are refused: informs the other workers, which would wait otherwise.
  /// @throws configuration_error, always
  [[noreturn]] void refuse(std::string const& why) {
    share_refusal(workers_, why);
    throw configuration_error(refusal_message(why));
  }
  /// As above for a started call: throws at once, and informs the other workers when the call has its turn.
  [[noreturn]] void start_refusal(call_queue& queue, std::string const& why) {
    auto kept = std::make_unique<std::string const>(why);
    auto const in_turn = [](call_queue::job const& what) {
      std::unique_ptr<std::string const> const text(static_cast<std::string const*>(what.members));
      share_refusal(static_cast<host_call*>(what.object)->workers_, *text);
    };
    call_queue::job const next{in_turn, this, {}, {}, 0, 0, kept.get()};
    queue.start(next);
    static_cast<void>(kept.release());
    throw configuration_error(refusal_message(why));
  }

  /// The configuration of the constructor, with the levels of the next call.
  call_setup const& setup() const { return setup_; }
  /// Codec of its operator.
  operator_codec* codec() { return codec_.get(); }
  /// Whether the handshake of the last call found that workers agree in everything except their operators.
  bool only_operators_differ() const { return detail::only_operators_differ(memory_->records); }

  void set_levels(levels::detail::level_table const& levels) {
    codec_->set_levels(levels);
    take_values(setup_.facts, levels);
  }

 private:
  std::string refusal_message(std::string const& why) const {
    return worker_message(setup_.operation, workers_.rank(), workers_.size(), why);
  }

  template <class F>
  void guarded(F const& f) {
    float_environment const exact;
    transport::keeping_reused(workers_, memory_, f);
  }

  /// Memory that a transfer may still access if a call is given up.
  struct workspace {
    frame_pool frames;
    std::vector<opening_record> records;
  };

  void exchange(call_task const& t) {
    places_.place(t.members, t.ops);
    partition const cut(t.ops.single_vector ? t.members[0].length : places_.length(),
                        t.schedule.parts(workers_.size()), t.ops.grain, t.ops.chunk_values);
    segment const brought = t.schedule.reads(cut, workers_.rank()),
                  written = t.schedule.writes(cut, workers_.rank());
    decision const d = open(t, brought, {cut.chunk(), t.schedule.sums_in_nodes ? node_chunk() : 0});
    auto const fill_results = [&](bool nan) {
      for (std::size_t k = 0; k < t.members.size(); ++k) {
        segment const part = t.of(k, written);
        fill(at(t.members[k].y, part.first), part.count, nan);
      }
    };
    auto const not_finite = [&](bool changed) {
      meter_.not_finite(changed ? -1 : d.who);
      if (setup_.settings.non_finite == non_finite::error)
        throw non_finite_error(non_finite_text(
            setup_.operation,
            changed ? beyond_range_text(t.members[group_.beyond_range()].y.type) : brought_text(d.who),
            changed));
      fill_results(true);
    };
    switch (d.what) {
      case call_status::not_finite:
        return not_finite(false);
      case call_status::beyond_scale:
        throw configuration_error(beyond_scale_text(setup_.operation, d.top, setup_.facts.fixed_scale));
      case call_status::zero:
        if (meter_.wants_errors() && t.ops.round()) note_zeros(t, brought);
        return fill_results(false);
      default:
        if (t.ops.round()) used_.add(t.step, t.members.size());
        send(t, cut, brought, d);
        if ((group_.faults() & kernel::out_of_range) != 0) not_finite(true);
        if ((group_.faults() & kernel::no_scale) != 0)
          fail<configuration_error>(
              {"globalq: ", setup_.operation, ": rank ", workers_.rank(), " of ", workers_.size(),
               ": the user norm returned no scale, or one below the largest magnitude, for a sum of frames; "
               "the largest magnitude was used; correct the norm's scale function"});
    }
  }

  /// Computes statistics and performs the handshake.
  /// @throws disagreement_error; configuration_error if a value exceeds its fixed scale
  decision open(call_task const& t, segment brought, chunk_sizes const& sizes) {
    std::uint64_t const buckets = places_.buckets();
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    std::uint64_t lists = hash(t.ops.grouping, t.members.size()), values = 0;
    double share = 0;  // largest value divided by its fixed scale
    for (std::size_t k = 0; k < t.members.size(); ++k) {
      auto const& m = t.members[k];
      operator_facts const& op = t.ops.facts(k);
      measure(op, m, t.of(k, brought), places_.first_bucket(k),
              t.enters_other(op) ? infinity : call_setup::inner_order_of(op));
      lists = hash(hash(lists, m.length), static_cast<std::uint64_t>(m.x.type));
      values += m.length;
      if (op.fixed_scale > 0 && !shares_scale(op) && !t.ops.single_vector)
        share = std::max(share, share_of_scale(op, places_.first_bucket(k), buckets_of(op, m.length)));
    }
    if (t.ops.single_vector) {
      operator_facts const& op = t.ops.facts(0);
      bool const whole = !t.enters_other(op) && buckets == 1 && statistics_[0].max_bits < double_infinity;
      std::uint32_t const q = call_setup::inner_order_of(op);
      return agree(t, 0, values, sizes, whole ? norm::relative_norm(statistics_[0], q) : 0.0, t.rule_of(op));
    }
    // every vector has a bucket at least; the records carry the share of fixed scales, and no scale is common to all
    // vectors
    scale_rule rule(operator_facts{}, t.type());
    rule.by_bucket = true;
    decision const d = agree(t, hash(lists, std::uint64_t{1}), values, sizes, share, rule);
    for (opening_record const& r : memory_->records) share = std::max(share, r.statistic);
    if (d.what == call_status::mean && share > 1)
      throw configuration_error(beyond_scale_text(setup_.operation, share));
    return d;
  }

  /// Computes the scales and runs the schedule.
  void send(call_task const& t, partition const& cut, segment brought, decision const& d) {
    scale_floats(t, d);
    call const c = t.common(workers_.rank(), workers_.size(), setup_.settings.seed, d);
    std::span<vector_group::member const> const inside = t.enters_others() ? enter(t, c, brought) : t.members;
    scale(t, inside, brought, d);
    if (meter_.wants_errors() && t.ops.round() && encodes(t.schedule)) {
      call own = c;
      own.workers = 1;
      own.weight = 1;
      auto const begin = [&](std::span<vector_group::member const> alone) -> globalq::codec& {
        return group_.begin(t.ops, own, alone, places_, scales_, float_scales_);
      };
      auto const compare = [this](const_vector x, mutable_vector rounded, std::uint64_t count) {
        add_errors(on_, x, rounded, count, meter_.report());
      };
      rounding_.measure(cut, t.schedule.parts(workers_.size()), brought, c.rank, inside, t.ops.single_vector,
                        begin, compare);
    }
    globalq::codec& frames = group_.begin(t.ops, c, inside, places_, scales_, float_scales_);
    run_metered(meter_, t.schedule, workers_, frames, cut, memory_->frames);
  }

  /// Values of a chunk of the sums within nodes.
  std::uint64_t node_chunk() const { return setup_.chunk_bytes / sizeof(float); }

  /// Whether this worker encodes its own values.
  bool encodes(schedule::erased const& schedule) const {
    return schedule.leads(workers_.rank(), workers_.size());
  }
  /// Computes the vectors to encode: sums of nodes, mapped by the stages.
  std::span<vector_group::member const> enter(call_task const& t, call const& c, segment brought) {
    entered_.clear();
    for (std::size_t k = 0; k < t.members.size(); ++k)
      entered_.add(t.members[k].x, t.members[k].length, t.of(k, brought), t.ops.facts(k),
                   t.schedule.sums_in_nodes);
    if (t.schedule.sums_in_nodes) {
      auto const timed = meter_.enter(phase::transfer);
      entered_.sum_nodes(t.schedule, workers_, c, float_scales_, node_chunk(), memory_->frames);
    }
    {
      auto const timed = meter_.enter(phase::norm);
      entered_.map(c);
    }
    inside_.assign(t.members.begin(), t.members.end());
    double share = 0;
    bool asks = false;
    for (std::size_t k = 0; k < inside_.size(); ++k) {
      operator_facts const& op = t.ops.facts(k);
      inside_[k].x = entered_[k];
      if (!t.enters_other(op)) continue;
      std::uint64_t const first = places_.first_bucket(k), buckets = buckets_of(op, inside_[k].length);
      if (encodes(t.schedule))
        measure(op, inside_[k], t.of(k, brought), first, call_setup::inner_order_of(op));
      else  // workers that do not encode have the statistics of zeros
        std::fill_n(statistics_.begin() + static_cast<std::ptrdiff_t>(first), buckets, norm::statistic{});
      if (!shares_scale(op)) continue;
      asks = true;
      share = std::max(share, share_of_scale(op, first, buckets));
    }
    if (asks) expect_within_scale(share);
    return inside_;
  }

  /// The scale of a bucket from this worker's statistics, in units of 2^wide.
  static double own_scale(operator_facts const& op, norm::statistic const& s, dtype type, decision const& d) {
    return op.fixed_scale > 0 ? rounded(op.fixed_scale * power_of_two(-d.wide))
                              : norm::local_scale(s, op.q, type, d.wide);
  }

  /// The largest value of consecutive buckets, divided by the scale of norm::fixed.
  double share_of_scale(operator_facts const& op, std::uint64_t first, std::uint64_t buckets) const {
    double share = 0;
    for (norm::statistic const& s : std::span(statistics_).subspan(first, buckets))
      if (s.finite()) share = std::max(share, s.max() / op.fixed_scale);
    return share;
  }
  /// Throws on all workers if a value of any of them exceeds its scale.
  void expect_within_scale(double share) {
    agree_on_scales(workers_, std::span(&share, 1), infinity, dtype::float64, memory_->frames);
    if (share > 1) throw configuration_error(beyond_scale_text(setup_.operation, share));
  }

  /// Reports a call in which nothing is rounded.
  void note_zeros(call_task const& t, segment brought) {
    std::uint64_t values = 0;
    for (std::size_t k = 0; k < t.members.size(); ++k) values += t.of(k, brought).count;
    meter_.report().rounded = meter_.report().zeros = values;
  }

  std::span<norm::statistic const> statistics_of(call_task const& t, std::size_t k) const {
    return std::span<norm::statistic const>(statistics_)
        .subspan(places_.first_bucket(k), buckets_of(t.ops.facts(k), t.members[k].length));
  }

  /// Fills scales_ with the scales of all buckets, in units of 2^wide.
  /// @param members  with the vectors to encode
  void scale(call_task const& t, std::span<vector_group::member const> members, segment brought,
             decision const& d) {
    if (scales_.size() < places_.buckets()) scales_.resize(places_.buckets());
    // reserve for scale_floats() too, which only large values need, perhaps in a later call
    shared_.clear(members.size(),
                  t.ops.single_vector ? 0 : std::max<std::uint64_t>(places_.buckets(), members.size()));
    tops_.reserve(members.size());
    float_scales_.reserve(members.size());
    if (own_scales_) own_scales_->clear();
    for (std::size_t k = 0; k < members.size(); ++k) {
      operator_facts const& op = t.ops.facts(k);
      std::span<norm::statistic const> const mine = statistics_of(t, k);
      std::span<double> const scales = std::span(scales_).subspan(places_.first_bucket(k), mine.size());
      if (!op.has_codes() || mine.empty()) continue;
      if (t.opening_has_norm(op)) {
        scales[0] = d.scale;
        continue;
      }
      if (op.own_norm != nullptr) {
        segment const measured = encodes(t.schedule) ? t.of(k, brought) : segment{};
        auto const timed = meter_.enter(phase::norm);
        own_scales_->add(on_, op, members[k].x, measured, scales,
                         op.local ? members[k].x.type : members[k].y.type, d.wide);
        continue;
      }
      for (std::size_t b = 0; b < mine.size(); ++b) scales[b] = own_scale(op, mine[b], members[k].x.type, d);
      if (op.shares_norm()) shared_.add(op.p, members[k].y.type, scales);
    }
    exchange_norms();
    if (!own_scales_ || own_scales_->empty()) return;
    auto const timed = meter_.enter(phase::opening);
    own_scales_->exchange(workers_, setup_.operation, memory_->frames);
  }

  /// Fills float_scales_ with the scale of the float32 values of each vector. It stays empty if no vector needs one; then, and
  /// for a single vector, nothing is exchanged.
  void scale_floats(call_task const& t, decision const& d) {
    float_scales_.clear();
    shared_.clear();
    int const n = workers_.size();
    auto const scale_of = [&](std::size_t k, double top) {
      dtype const type = t.members[k].x.type;
      stages const& chain = t.ops.facts(k).chain;
      return top == 0 ? float_scale{} : float_scale_of(top_of(chain, top, chain.size(), type), n, type);
    };
    auto const needs_scale = [n](double top) {
      float_scale const most = float_scale_of(top, n, dtype::float64);
      return most.divisor != 1 || most.wide != 0;
    };
    bool needs = needs_scale(d.top);
    for (group_slot const& slot : t.ops.slots)
      needs = needs || needs_scale(top_of(slot.facts->chain, d.top, slot.facts->chain.size(), t.type()));
    if (!needs) return;
    tops_.assign(t.members.size(), t.ops.single_vector ? d.top : 0.0);
    for (std::size_t k = 0; k < tops_.size() && !t.ops.single_vector; ++k) {
      operator_facts const& op = t.ops.facts(k);
      for (norm::statistic const& s : statistics_of(t, k)) tops_[k] = std::max(tops_[k], s.max());
      if (op.sends_floats() || t.schedule.sums_in_nodes)
        shared_.add(infinity, t.members[k].x.type, std::span(tops_).subspan(k, 1));
    }
    exchange_norms();
    for (std::size_t k = 0; k < tops_.size(); ++k) float_scales_.push_back(scale_of(k, tops_[k]));
  }

  void exchange_norms() {
    if (shared_.empty()) return;
    auto const timed = meter_.enter(phase::opening);
    shared_.exchange(workers_, memory_->frames);
  }

  /// Computes the statistics of the buckets of a vector.
  /// @param part   the part that this worker contributes; begins at a bucket. Other buckets get the statistics of zeros
  /// @param first  the vector's first bucket
  /// @param q      order of the norm
  void measure(operator_facts const& op, vector_group::member const& m, segment part, std::uint64_t first,
               std::uint32_t q) {
    auto const timed = meter_.enter(phase::norm);
    auto const mine = std::span(statistics_).subspan(first, buckets_of(op, m.length));
    if (part.count != m.length) std::fill(mine.begin(), mine.end(), norm::statistic{});
    norm::bucket_statistics(
        on_, part.count, op.bucket, q, norm::input_block{at(m.x, part.first), q},
        mine.subspan(op.bucket == 0 ? 0 : part.first / op.bucket, buckets_of(op, part.count)), parts_);
  }

  /// The handshake.
  /// @param grouping  0, or a hash of the group's lengths and types
  decision agree(call_task const& t, std::uint64_t grouping, std::uint64_t values, chunk_sizes const& sizes,
                 double relative, scale_rule const& rule) {
    int const n = workers_.size();
    auto const timed = meter_.enter(phase::opening);
    std::uint64_t top = 0;
    for (std::uint64_t b = 0; b < places_.buckets(); ++b) top = std::max(top, statistics_[b].max_bits);
    agreement agreed(t.type(), t.ops.hash, setup_.schedule_hash, n, sizes, setup_.settings.seed,
                     setup_.settings.non_finite, values);
    if (grouping != 0) agreed.fields[agreement::type] = hash(agreed.fields[agreement::type], grouping);
    agreed.fields[agreement::settings] = hash(0, t.ops.settings);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    // in memory that outlives an abandoned call
    auto const mine = std::span(records).subspan(static_cast<std::size_t>(workers_.rank()), 1);
    mine[0] = agreed.record(t.ops.reported_step(t.step), top, relative);
    transport::allgather(workers_, std::as_bytes(mine), std::as_writable_bytes(std::span(records)));
    check_agreement(workers_, records, setup_.operation, setup_.forced,
                    [&](int field) { return t.text(field, setup_, sizes, n); });
    return decide(records.data(), n, rule);
  }

  transport::endpoint& workers_;
  call_setup setup_;
  executor on_;
  std::unique_ptr<operator_codec> codec_;
  used_steps used_;
  call_meter meter_;
  entered_vectors entered_;
  std::vector<vector_group::member> inside_;  ///< members of a group, with the vectors to encode
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> scales_, tops_;
  shared_norms shared_;
  std::unique_ptr<own_scales> own_scales_;  ///< null: no norm is a user's type
  std::vector<float_scale> float_scales_;
  group_places places_;
  grouped_codec group_;
  own_rounding rounding_;  ///< for telemetry
  std::shared_ptr<workspace> memory_;
};

}  // namespace GLOBALQ_ABI::detail
