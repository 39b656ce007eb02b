// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: a call over a host-memory transport; the calling thread decides and communicates.

#include "../../operator/any_quantizer.hpp"
#include "../../schedule/erased.hpp"
#include "../../telemetry/detail/metered_codec.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "../call_queue.hpp"
#include "call_scales.hpp"
#include "entered.hpp"
#include "handshake.hpp"
#include "rounding_errors.hpp"
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
        scales_(workers, setup_, on, meter_),
        handshake_(workers, setup_, meter_),
        entered_(on),
        memory_(std::make_shared<workspace>()) {}

  host_call(host_call const&) = delete;  // members refer to each other
  host_call& operator=(host_call const&) = delete;

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
    residuals_.begin();
    if (ops.round()) {
      std::string const why = used_.refusal(step, members.size(), ops.reported_step(step));
      if (!why.empty()) refuse(why);
    }
    for (std::size_t k = 0; k < members.size(); ++k) {
      std::string why = type_refusal(ops.facts(k), members[k].y.type);
      if (why.empty() && feedback_of(ops.facts(k).chain) != nullptr)
        why = residuals_.refusal(k, members[k].length, mapped_type(members[k].x.type));
      if (!why.empty()) refuse(why);
    }
    std::uint64_t values = 0;
    for (auto const& m : members) values += m.length;
    auto const watched =
        meter_.watch(workers_, setup_.operation, ops.reported_step(step), values, !ops.round());
    float_environment const exact;
    informing(workers_, memory_, [&] { exchange({schedule, members, ops, step}); });
  }

  /// Handles a call whose arguments are refused: informs the other workers, which would wait otherwise.
  /// @throws configuration_error, always
  [[noreturn]] void refuse(std::string const& why) {
    residuals_.begin();
    share_refusal(workers_, why);
    throw configuration_error(refusal_message(why));
  }
  /// As above for a started call: throws at once, and informs the other workers when the call has its turn.
  [[noreturn]] void start_refusal(call_queue& queue, std::string const& why) {
    auto kept = std::make_unique<std::string const>(why);
    auto const in_turn = [](call_queue::job const& what) {
      std::unique_ptr<std::string const> const text(static_cast<std::string const*>(what.members));
      static_cast<host_call*>(what.object)->residuals_.begin();
      share_refusal(static_cast<host_call*>(what.object)->workers_, *text);
    };
    call_queue::job const next{in_turn, this, {}, {}, 0, 0, kept.get()};
    queue.start(next);
    static_cast<void>(kept.release());
    throw configuration_error(refusal_message(why));
  }

  /// The configuration of the constructor, with the levels of the next call.
  call_setup const& setup() const { return setup_; }
  /// Residuals of operators with error feedback, between calls.
  residuals& kept() { return residuals_; }
  residuals const& kept() const { return residuals_; }
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

  /// Memory that a transfer may still access if a call is given up.
  struct workspace {
    frame_pool frames;
    std::vector<opening_record> records;
  };

  void exchange(call_task const& t) {
    scales_.place(t);
    partition const cut(t.ops.single_vector ? t.members[0].length : scales_.places().length(),
                        t.schedule.parts(workers_.size()), t.ops.grain, t.ops.chunk_values);
    segment const brought = t.schedule.reads(cut, workers_.rank()),
                  written = t.schedule.writes(cut, workers_.rank());
    decision const d =
        handshake_(t, scales_, brought, {cut.chunk(), t.schedule.sums_in_nodes ? node_chunk() : 0},
                   residuals_, memory_->records);
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
        each_residual(t, [&](residual& r, feedback_options const& o) {
          if (o.resets(t.ops.reported_step(t.step))) r.commit_none();
        });
        return fill_results(false);
      default:
        if (t.ops.round()) used_.add(t.step, t.members.size());
        send(t, cut, brought, d);
        bool const beyond = (group_.faults() & kernel::out_of_range) != 0;
        if (beyond) not_finite(true);
        if ((group_.faults() & kernel::no_scale) != 0)
          fail<configuration_error>(
              {"globalq: ", setup_.operation, ": rank ", workers_.rank(), " of ", workers_.size(),
               ": the user norm returned no scale, or one below the largest magnitude, for a sum of frames; "
               "the largest magnitude was used; correct the norm's scale function"});
        if (!beyond) each_residual(t, [](residual& r, feedback_options const&) { r.commit(); });
    }
  }

  /// f(residual, options) for vectors that have one.
  template <class F>
  void each_residual(call_task const& t, F const& f) {
    for (std::size_t k = 0; k < t.members.size(); ++k)
      if (feedback_options const* const o = feedback_of(t.ops.facts(k).chain);
          o != nullptr && t.members[k].length != 0)
        f(residuals_.of(k), *o);
  }

  /// Computes the scales and runs the schedule.
  void send(call_task const& t, partition const& cut, segment brought, decision const& d) {
    scales_.scale_floats(t, d, residuals_, memory_->frames);
    codec_call const c = t.common(workers_.rank(), workers_.size(), setup_.settings.seed, d);
    bool const compares = meter_.wants_errors() && t.ops.round() && encodes(t.schedule);
    std::span<vector_group::member const> const inside =
        t.enters_others() ? enter(t, c, brought, compares) : t.members;
    scales_.scale(t, inside, brought, encodes(t.schedule), d, memory_->frames);
    if (compares) {
      codec_call own = c;
      own.workers = 1;
      own.weight = 1;
      auto const begin = [&](std::span<vector_group::member const> alone) -> globalq::codec& {
        return group_.begin(t.ops, own, alone, scales_.places(), scales_.all());
      };
      auto const compare = [this](const_vector x, mutable_vector rounded, std::uint64_t count) {
        add_errors(on_, x, rounded, count, meter_.report());
      };
      given_.clear();
      for (std::size_t k = 0; k < inside.size(); ++k)
        given_.push_back(t.enters_others() ? entered_.given(k) : inside[k].x);
      rounding_.measure(cut, t.schedule.parts(workers_.size()), brought, c.rank, inside, given_,
                        t.ops.single_vector, begin, compare);
    }
    globalq::codec& frames = group_.begin(t.ops, c, inside, scales_.places(), scales_.all(), &residuals_);
    run_metered(meter_, t.schedule, workers_, frames, cut, memory_->frames);
  }

  /// Values of a chunk of the sums within nodes.
  std::uint64_t node_chunk() const { return setup_.chunk_bytes / sizeof(float); }

  /// Whether this worker encodes its own values.
  bool encodes(schedule::erased const& schedule) const {
    return schedule.leads(workers_.rank(), workers_.size());
  }
  /// Computes the vectors to encode: sums of nodes, mapped by the stages.
  /// @param compares  whether they will be compared with the vectors before stages
  std::span<vector_group::member const> enter(call_task const& t, codec_call const& c, segment brought,
                                              bool compares) {
    entered_.clear();
    for (std::size_t k = 0; k < t.members.size(); ++k)
      entered_.add(t.members[k].x, t.members[k].length, t.of(k, brought), t.ops.facts(k),
                   t.schedule.sums_in_nodes);
    if (t.schedule.sums_in_nodes) {
      auto const timed = meter_.enter(phase::transfer);
      entered_.sum_nodes(t.schedule, workers_, c, scales_.all().floats, node_chunk(), memory_->frames);
    }
    {
      auto const timed = meter_.enter(phase::norm);
      entered_.map(c, compares, residuals_, t.ops.reported_step(t.step));
    }
    inside_.assign(t.members.begin(), t.members.end());
    double share = 0;
    bool asks = false;
    for (std::size_t k = 0; k < inside_.size(); ++k) {
      operator_facts const& op = t.ops.facts(k);
      inside_[k].x = entered_[k];
      if (!t.enters_other(op)) continue;
      if (encodes(t.schedule))
        scales_.measure(t, k, entered_[k], t.of(k, brought), call_setup::inner_order_of(op));
      else
        scales_.forget(t, k);
      if (!shares_scale(op)) continue;
      asks = true;
      share = std::max(share, scales_.share_of_scale(t, k));
    }
    if (asks) expect_within_scale(share);
    return inside_;
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

  transport::endpoint& workers_;
  call_setup setup_;
  executor on_;
  std::unique_ptr<operator_codec> codec_;
  used_steps used_;
  call_meter meter_;
  call_scales scales_;
  handshake handshake_;
  entered_vectors entered_;
  residuals residuals_;
  std::vector<vector_group::member> inside_;  ///< members of a group, with the vectors to encode
  std::vector<const_vector> given_;           ///< for telemetry: these vectors before stages
  grouped_codec group_;
  own_rounding rounding_;  ///< for telemetry
  std::shared_ptr<workspace> memory_;
};

}  // namespace GLOBALQ_ABI::detail
