// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: a call over a transport that moves host memory, decided and driven by the calling thread.

#include "../../kernel/reduction.hpp"
#include "../../operator/any_quantizer.hpp"
#include "../../schedule/erased.hpp"
#include "../../telemetry/detail/call_meter.hpp"
#include "../../telemetry/detail/metered_codec.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "../../transport/endpoint.hpp"
#include "../call_queue.hpp"
#include "entered.hpp"
#include "grouped_codec.hpp"
#include "opening.hpp"
#include "rounding_errors.hpp"
#include "setup.hpp"

namespace globalq::detail {

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
        memory_(std::make_shared<workspace>()) {}

  /// One call.
  void run(schedule::erased const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
           std::uint64_t step) {
    meter_.watch(workers_, setup_.operation, step, length, setup_.facts.plain,
                 [&] { guarded([&] { exchange(schedule, x, y, length, step); }); });
  }

  /// The same for several vectors; vector k draws the random bits of step + k.
  void run_group(schedule::erased const& schedule, std::span<vector_group::member const> members,
                 std::uint64_t step) {
    group_slot const own{&setup_.facts, codec_.get()};
    run_group(schedule, members,
              {{&own, 1},
               {},
               hash(setup_.operator_hash, setup_.facts.levels),
               grain_of(setup_.facts),
               setup_.chunk_values(),
               0},
              step);
  }

  /// The same with operators of their own.
  void run_group(schedule::erased const& schedule, std::span<vector_group::member const> members,
                 group_operators const& ops, std::uint64_t step) {
    std::uint64_t values = 0;
    for (auto const& m : members) values += m.length;
    meter_.watch(workers_, setup_.operation, ops.reported_step(step), values, is_plain(ops),
                 [&] { guarded([&] { exchange_group(schedule, members, ops, step); }); });
  }

  /// In place of a call whose arguments are refused: tells the others, which would wait.
  /// @throws configuration_error, always
  [[noreturn]] void refuse(std::string const& why) {
    share_refusal(workers_, why);
    throw configuration_error(refusal_message(why));
  }
  /// In place of one that is started: throws here, and tells the others when it would have its turn.
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

  /// What it was made with; levels are those of the next call.
  call_setup const& setup() const { return setup_; }
  /// That of its operator.
  operator_codec* codec() { return codec_.get(); }
  /// Whether the last call found that workers agree in all but their operators.
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
    kernel::float_environment const exact;
    transport::keeping_reused(workers_, memory_, f);
  }

  /// Everything a transfer may still touch when a call is given up.
  struct workspace {
    frame_pool frames;
    std::vector<opening_record> records;
  };

  /// Tells the report of the call what became of values.
  auto compare() {
    return [this](const_vector x, mutable_vector rounded, std::uint64_t count) {
      add_errors(on_, x, rounded, count, meter_.report());
    };
  }

  void exchange(schedule::erased const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
                std::uint64_t step) {
    int const n = workers_.size();
    operator_facts const& op = setup_.facts;
    std::uint64_t const buckets = setup_.buckets(length);
    layout const cut(length, schedule.parts(n), grain_of(op), setup_.chunk_values());
    segment const written = schedule.writes(cut, workers_.rank()),
                  brought = schedule.reads(cut, workers_.rank());
    bool const enters = enters_other(schedule, op);
    decision const d = open(schedule, x, length, brought, step, enters);
    auto const fill_result = [&](bool nan) { fill(at(y, written.first), written.count, nan); };
    if (d.what == outcome::zero && !setup_.facts.plain) note_zeros(brought.count);
    auto const type = [&] { return y.type; };
    conclude(d, type, fill_result, [&] {
      call c = common_call(schedule, step, d, x.type);
      c.x = x;
      c.y = y;
      c.length = length;
      if (enters) {
        entered_.clear();
        entered_.add(x, length, brought, op, schedule.sums_in_nodes);
        plain_scale const scale{c.plain_unit, c.plain_wide};
        enter(schedule, c, {&scale, 1});
        c.x = entered_[0];
        measure_entered(schedule, op, at(c.x, brought.first), brought.count, first_bucket(op, brought));
        if (shares_unit(op)) expect_within_unit(share_of_unit(op, 0, buckets));
      }
      scale_buckets(c.x.type, buckets, d, rule_of(op, x.type, enters).by_bucket);
      c.units = scales(buckets);
      if (meter_.wants_errors() && !op.plain && encodes(schedule)) {
        vector_group::member const mine{at(c.x, brought.first), {}, brought.count};
        auto const begin = [&](std::span<vector_group::member const> alone) {
          call own = c;
          own.workers = 1;
          own.weight = 1;
          own.y = at(alone[0].y, -brought.first);
          codec_->begin(own);
        };
        rounding_.measure(*codec_, cut, schedule.parts(n), brought, c.rank, {&mine, 1}, begin, compare());
      }
      codec_->begin(c);
      run_metered(meter_, schedule, workers_, *codec_, cut, memory_->frames);
      return codec_->faults();
    });
  }

  void exchange_group(schedule::erased const& schedule, std::span<vector_group::member const> members,
                      group_operators const& ops, std::uint64_t step) {
    int const n = workers_.size();
    places_.place(members, ops);
    std::uint64_t const buckets = places_.buckets();
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    std::uint64_t lists = hash(ops.grouping, members.size()), values = 0;
    double share = 0;  // of the units that are fixed
    bool enters = false;
    for (std::size_t k = 0; k < members.size(); ++k) {
      auto const& m = members[k];
      operator_facts const& op = ops.facts(k);
      bool const later = enters_other(schedule, op);
      enters = enters || later;
      measure(op, m.x, m.length, places_.first_bucket(k), later ? infinity : call_setup::inner_order_of(op));
      lists = hash(hash(lists, m.length), static_cast<std::uint64_t>(m.x.type));
      values += m.length;
      if (op.fixed_unit > 0 && !op.centred)
        share = std::max(share, share_of_unit(op, places_.first_bucket(k), buckets_of(op, m.length)));
    }
    dtype const type = members.empty() ? dtype::float32 : members[0].x.type;
    // every vector is a bucket at least, and says what fixed units it needs: nothing is left to one scale for all
    scale_rule rule(operator_facts{}, type);
    rule.by_bucket = true;
    decision const d = agree(schedule, ops.hash, type, hash(lists, std::uint64_t{1}), values, buckets, share,
                             rule, step, [&](int field) { return group_text(field, members, ops, step); });
    for (opening_record const& r : memory_->records) share = std::max(share, r.statistic);
    if (d.what == outcome::mean && share > 1)
      throw configuration_error(beyond_unit_text(setup_.operation, share));
    auto const fill_result = [&](bool nan) {
      for (auto const& m : members) fill(m.y, m.length, nan);
    };
    if (d.what == outcome::zero && !is_plain(ops)) note_zeros(values);
    auto const type_beyond = [&] { return members[group_.beyond_range()].y.type; };
    conclude(d, type_beyond, fill_result, [&] {
      scale_plain(schedule, ops, members, d);
      call const c = common_call(schedule, step, d, type);
      std::span<vector_group::member const> const inside =
          enters ? enter_group(schedule, ops, members, c) : members;
      scale_group(ops, inside, d);
      std::span<double const> const units = std::span<double const>(units_).first(buckets);
      layout const cut(places_.length(), schedule.parts(n), ops.grain, ops.chunk_values);
      if (meter_.wants_errors() && !is_plain(ops) && encodes(schedule)) {
        auto const begin = [&](std::span<vector_group::member const> alone) {
          call own = c;
          own.workers = 1;
          own.weight = 1;
          group_.begin(ops, own, alone, places_, units, plain_);
        };
        rounding_.measure(group_, cut, schedule.parts(n), {0, places_.length()}, c.rank, inside, begin,
                          compare());
      }
      group_.begin(ops, c, inside, places_, units, plain_);
      run_metered(meter_, schedule, workers_, group_, cut, memory_->frames);
      return group_.faults();
    });
  }

  /// Whether what is encoded is another vector than the caller's, known once all workers have agreed.
  static bool enters_other(schedule::erased const& schedule, operator_facts const& op) {
    return schedule.sums_in_nodes || op.centred;
  }
  /// Whether this worker encodes own values.
  bool encodes(schedule::erased const& schedule) const {
    return schedule.leads(workers_.rank(), workers_.size());
  }
  static std::uint64_t first_bucket(operator_facts const& op, segment part) {
    return op.bucket == 0 ? 0 : part.first / op.bucket;
  }

  /// Makes the vectors that are encoded: sums of nodes, then values around midpoints.
  void enter(schedule::erased const& schedule, call const& c, std::span<plain_scale const> scales) {
    if (schedule.sums_in_nodes) {
      auto const timed = meter_.enter(phase::transfer);
      entered_.sum_nodes(schedule, workers_, c, scales, setup_.chunk_bytes / sizeof(float), memory_->frames);
    }
    auto const timed = meter_.enter(phase::norm);
    entered_.centre();
  }

  std::span<vector_group::member const> enter_group(schedule::erased const& schedule,
                                                    group_operators const& ops,
                                                    std::span<vector_group::member const> members,
                                                    call const& c) {
    entered_.clear();
    for (std::size_t k = 0; k < members.size(); ++k)
      entered_.add(members[k].x, members[k].length, {0, members[k].length}, ops.facts(k),
                   schedule.sums_in_nodes);
    enter(schedule, c, plain_);
    inside_.assign(members.begin(), members.end());
    double share = 0;
    bool asks = false;
    for (std::size_t k = 0; k < members.size(); ++k) {
      operator_facts const& op = ops.facts(k);
      inside_[k].x = entered_[k];
      if (!enters_other(schedule, op)) continue;
      measure_entered(schedule, op, inside_[k].x, inside_[k].length, places_.first_bucket(k));
      if (!shares_unit(op)) continue;
      asks = true;
      share = std::max(share, share_of_unit(op, places_.first_bucket(k), buckets_of(op, members[k].length)));
    }
    if (asks) expect_within_unit(share);
    return inside_;
  }

  /// Statistics of what is encoded; workers that encode nothing have those of zeros.
  void measure_entered(schedule::erased const& schedule, operator_facts const& op, const_vector x,
                       std::uint64_t count, std::uint64_t first) {
    if (encodes(schedule))
      measure(op, x, count, first, call_setup::inner_order_of(op));
    else
      std::fill_n(statistics_.begin() + static_cast<std::ptrdiff_t>(first), buckets_of(op, count),
                  norm::statistic{});
  }

  /// The scale of a bucket as this worker knows it, in units of 2^wide.
  static double own_unit(operator_facts const& op, norm::statistic const& s, dtype type, decision const& d) {
    return op.fixed_unit > 0 ? rounded(op.fixed_unit * power_of_two(-d.wide))
                             : norm::local_unit(s, op.q, type, d.wide);
  }

  /// The largest share of the unit of norm::fixed that a value of consecutive buckets has.
  double share_of_unit(operator_facts const& op, std::uint64_t first, std::uint64_t buckets) const {
    double share = 0;
    for (norm::statistic const& s : std::span(statistics_).subspan(first, buckets))
      if (s.finite()) share = std::max(share, s.max() / op.fixed_unit);
    return share;
  }
  /// Throws on all workers where one has more than its unit.
  void expect_within_unit(double share) {
    agree_on_units(workers_, std::span(&share, 1), infinity, dtype::float64, memory_->frames);
    if (share > 1) throw configuration_error(beyond_unit_text(setup_.operation, share));
  }

  /// Whether all vectors of a group travel as float32.
  static bool is_plain(group_operators const& ops) {
    return std::all_of(ops.slots.begin(), ops.slots.end(),
                       [](group_slot const& s) { return s.facts->plain; });
  }

  /// A call of which nothing is rounded.
  void note_zeros(std::uint64_t count) {
    if (meter_.wants_errors()) meter_.report().rounded = meter_.report().zeros = count;
  }

  std::span<norm::statistic const> statistics_of(group_operators const& ops,
                                                 std::span<vector_group::member const> members,
                                                 std::size_t k) const {
    return std::span<norm::statistic const>(statistics_)
        .subspan(places_.first_bucket(k), buckets_of(ops.facts(k), members[k].length));
  }

  /// Fills units_ with the scales of a group's buckets, in units of 2^wide. Norms that are combined by the same rule and
  /// travel in the same width share an exchange.
  void scale_group(group_operators const& ops, std::span<vector_group::member const> members,
                   decision const& d) {
    units_.resize(std::max<std::uint64_t>(units_.size(), places_.buckets()));
    // for scale_plain() as well, which only large values need: in a later call, maybe
    exchanged_.reserve(std::max<std::uint64_t>(places_.buckets(), members.size()));
    tops_.reserve(members.size());
    plain_.reserve(members.size());
    kinds_.clear();
    for (std::size_t k = 0; k < members.size(); ++k) {
      operator_facts const& op = ops.facts(k);
      std::span<norm::statistic const> const mine = statistics_of(ops, members, k);
      double* const units = units_.data() + places_.first_bucket(k);
      if (op.plain || mine.empty()) continue;
      for (std::size_t b = 0; b < mine.size(); ++b) units[b] = own_unit(op, mine[b], members[k].x.type, d);
      if (op.local || op.fixed_unit > 0) continue;
      norm_kind const kind{op.p, members[k].y.type};
      if (std::find(kinds_.begin(), kinds_.end(), kind) == kinds_.end()) kinds_.push_back(kind);
    }
    for (norm_kind const& kind : kinds_) {
      auto const each_of_kind = [&](auto const& f) {
        for (std::size_t k = 0; k < members.size(); ++k) {
          operator_facts const& op = ops.facts(k);
          if (op.plain || op.local || op.fixed_unit > 0 || kind != norm_kind{op.p, members[k].y.type})
            continue;
          f(std::span(units_).subspan(places_.first_bucket(k), buckets_of(op, members[k].length)));
        }
      };
      exchange_units(kind, each_of_kind);
    }
  }

  /// Fills plain_ with what float32 values are divided by, each vector by itself. It is empty where none is, and nothing is
  /// exchanged then.
  void scale_plain(schedule::erased const& schedule, group_operators const& ops,
                   std::span<vector_group::member const> members, decision const& d) {
    plain_.clear();
    int const n = workers_.size();
    plain_scale const most = plain_scale_of(d.top, n, dtype::float64);
    if (most.unit == 1 && most.wide == 0) return;
    tops_.assign(members.size(), 0.0);
    for (std::size_t k = 0; k < members.size(); ++k)
      for (norm::statistic const& s : statistics_of(ops, members, k)) tops_[k] = std::max(tops_[k], s.max());
    for (dtype const type : {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
      auto const each_of_type = [&](auto const& f) {
        for (std::size_t k = 0; k < members.size(); ++k) {
          operator_facts const& op = ops.facts(k);
          if ((op.plain || op.plain_tail || op.centred || schedule.sums_in_nodes) &&
              members[k].x.type == type)
            f(std::span(tops_).subspan(k, 1));
        }
      };
      exchange_units({infinity, type}, each_of_type);
    }
    for (std::size_t k = 0; k < members.size(); ++k)
      plain_.push_back(tops_[k] == 0 ? plain_scale{} : plain_scale_of(tops_[k], n, members[k].x.type));
  }

  /// What norms must have in common to be exchanged together.
  struct norm_kind {
    std::uint32_t p;
    dtype type;
    bool operator==(norm_kind const&) const = default;
  };

  /// agree_on_units() of all that @p each gives to its argument, in turn.
  template <class Each>
  void exchange_units(norm_kind const& kind, Each const& each) {
    exchanged_.clear();
    each([&](std::span<double> units) { exchanged_.insert(exchanged_.end(), units.begin(), units.end()); });
    if (exchanged_.empty()) return;
    auto const timed = meter_.enter(phase::opening);
    agree_on_units(workers_, std::span(exchanged_), kind.p, kind.type, memory_->frames);
    auto from = exchanged_.cbegin();
    each([&](std::span<double> units) {
      std::copy_n(from, units.size(), units.begin());
      from += static_cast<std::ptrdiff_t>(units.size());
    });
  }

  /// Does what the records come to.
  /// @param type         type(): of the vector that a result is beyond the range of
  /// @param fill_result  fill_result(nan): writes zeros, or NaN, to all of the result
  /// @param send         makes the result; returns the faults of the kernels
  template <class Type, class Fill, class Send>
  void conclude(decision const& d, Type const& type, Fill const& fill_result, Send const& send) {
    auto const not_finite = [&](auto const& why, bool changed) {
      meter_.not_finite(d.what == outcome::not_finite ? d.who : -1);
      if (setup_.settings.non_finite == non_finite::error)
        throw non_finite_error(non_finite_text(setup_.operation, why(), changed));
      fill_result(true);
    };
    if (d.what == outcome::not_finite) return not_finite([&] { return brought_text(d.who); }, false);
    if (d.what == outcome::beyond_unit)
      throw configuration_error(beyond_unit_text(setup_.operation, d.top, setup_.facts.fixed_unit));
    if (d.what == outcome::zero) return fill_result(false);
    if ((send() & kernel::out_of_range) != 0) not_finite([&] { return beyond_range_text(type()); }, true);
  }

  /// What of a call does not depend on its vectors.
  call common_call(schedule::erased const& schedule, std::uint64_t step, decision const& d,
                   dtype type) const {
    call c;
    plain_scale const plain = plain_scale_of(d.top, workers_.size(), type);
    c.plain_unit = plain.unit;
    c.plain_wide = plain.wide;
    c.rank = workers_.rank();
    c.workers = schedule.gathers ? 1 : workers_.size();
    if (schedule.sums_in_nodes) {
      schedule_facts const s = schedule.facts(workers_.size());
      c.rank = schedule.node_of(workers_.rank(), workers_.size());
      c.workers = s.vectors(workers_.size());
      c.weight = s.weight(workers_.size());
    }
    c.seed = setup_.settings.seed;
    c.step = step;
    c.wide = d.wide;
    return c;
  }
  std::span<double const> scales(std::uint64_t buckets) const {
    return std::span<double const>(units_).first(setup_.facts.plain ? 1 : buckets);
  }

  /// The statistics of consecutive buckets.
  /// @param q  order of the norm
  void measure(operator_facts const& op, const_vector x, std::uint64_t count, std::uint64_t first_bucket,
               std::uint32_t q) {
    auto const timed = meter_.enter(phase::norm);
    norm::bucket_statistics(on_, count, op.bucket, q, norm::input_block{x, q},
                            std::span(statistics_).subspan(first_bucket, buckets_of(op, count)), parts_);
  }

  /// One pass over what this worker brings, then the exchange of what it gave.
  /// @throws disagreement_error
  decision open(schedule::erased const& schedule, const_vector x, std::uint64_t length, segment brought,
                std::uint64_t step, bool enters) {
    std::uint32_t const q = enters ? infinity : setup_.inner_order();
    std::uint64_t const buckets = setup_.buckets(length);
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    if (brought.count != length) std::fill_n(statistics_.begin(), buckets, norm::statistic{});
    measure(setup_.facts, at(x, brought.first), brought.count, first_bucket(setup_.facts, brought), q);
    bool const whole = !enters && buckets == 1 && statistics_[0].max_bits < double_infinity;
    return agree(schedule, hash(setup_.operator_hash, setup_.facts.levels), x.type, 0, length, buckets,
                 whole ? norm::relative_norm(statistics_[0], q) : 0.0, rule_of(setup_.facts, x.type, enters),
                 step, [&](int field) {
                   return field == agreement::type   ? std::string(name_of(x.type))
                          : field == agreement::step ? std::to_string(step)
                                                     : setup_.facts.name;
                 });
  }

  /// @param enters  whether norms are those of other vectors than were measured so far: each is a bucket's at least
  static scale_rule rule_of(operator_facts const& op, dtype type, bool enters) {
    scale_rule rule(op, type);
    if (op.centred) rule.fixed_unit = 0;  // it is for values around midpoints
    rule.by_bucket = rule.by_bucket || (enters && !op.plain && rule.fixed_unit == 0);
    return rule;
  }

  /// The opening exchange.
  /// @param grouping  0, or what tells one list of lengths and types from another
  /// @param text      text(field) of this worker's types, operator and step, for errors
  template <class Text>
  decision agree(schedule::erased const& schedule, std::uint64_t operator_hash, dtype type,
                 std::uint64_t grouping, std::uint64_t length, std::uint64_t buckets, double relative,
                 scale_rule const& rule, std::uint64_t step, Text const& text) {
    int const n = workers_.size();
    auto const timed = meter_.enter(phase::opening);
    std::uint64_t top = 0;
    for (std::uint64_t b = 0; b < buckets; ++b) top = std::max(top, statistics_[b].max_bits);
    agreement agreed(type, operator_hash, setup_.schedule_hash, n, setup_.settings.seed,
                     setup_.settings.non_finite, length);
    if (grouping != 0) agreed.fields[0] = hash(agreed.fields[0], grouping);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    // in memory that outlasts a call that is given up
    auto const mine = std::span(records).subspan(static_cast<std::size_t>(workers_.rank()), 1);
    mine[0] = agreed.record(step, top, relative);
    transport::allgather(workers_, std::as_bytes(mine), std::as_writable_bytes(std::span(records)));
    check_agreement(workers_, records, setup_.operation, setup_.forced, [&](int field) {
      if (field == agreement::schedule)
        return schedule.facts(n).name + (" of " + std::to_string(n) + " workers");
      if (field == agreement::seed) return std::to_string(setup_.settings.seed);
      if (field == agreement::mode) return mode_text(setup_.settings.non_finite);
      return text(field);
    });
    return decide(records.data(), n, rule);
  }

  /// What agree() asks of a group.
  static std::string group_text(int field, std::span<vector_group::member const> members,
                                group_operators const& ops, std::uint64_t step) {
    if (field == agreement::step) return std::to_string(ops.reported_step(step));
    if (field == agreement::what)
      return ops.of.empty() ? ops.slots[0].facts->name : "those of " + number(members.size()) + " layers";
    std::string list = "a group of";
    for (auto const& m : members) list += " " + number(m.length) + " " + name_of(m.x.type);
    return list;
  }

  /// Fills units_ with the scales of this call, in units of 2^wide.
  void scale_buckets(dtype type, std::uint64_t buckets, decision const& d, bool by_bucket) {
    operator_facts const& op = setup_.facts;
    if (units_.size() < buckets) units_.resize(buckets);
    if (!by_bucket) {
      std::fill_n(units_.begin(), buckets, d.unit);
      return;
    }
    for (std::uint64_t b = 0; b < buckets; ++b) units_[b] = own_unit(op, statistics_[b], type, d);
    if (op.local || op.fixed_unit > 0) return;
    auto const timed = meter_.enter(phase::opening);
    agree_on_units(workers_, std::span(units_).first(buckets), op.p, type, memory_->frames);
  }

  transport::endpoint& workers_;
  call_setup setup_;
  executor on_;
  std::unique_ptr<operator_codec> codec_;
  call_meter meter_;
  entered_vectors entered_;
  std::vector<vector_group::member> inside_;  ///< of a group, with what is encoded
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> units_, exchanged_, tops_;
  std::vector<norm_kind> kinds_;
  std::vector<plain_scale> plain_;
  group_places places_;
  grouped_codec group_;
  own_rounding rounding_;  ///< for telemetry
  std::shared_ptr<workspace> memory_;
};

}  // namespace globalq::detail
