// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: a call over a transport that moves host memory, decided and driven by the calling thread.

#include "../any_quantizer.hpp"
#include "../norm/reduction.hpp"
#include "../plan.hpp"
#include "../transport/collectives.hpp"
#include "grouped_codec.hpp"
#include "opening.hpp"

namespace globalq::detail {

/// What is fixed when an allreduce_mean is made.
struct call_setup {
  options settings;
  operator_facts facts;
  resolution resolved;
  char const* operation = "";       ///< for errors
  std::uint64_t operator_hash = 0;  ///< without the values of its levels
  std::uint64_t levels_hash = 0;
  std::size_t chunk_bytes = default_chunk_bytes;

  std::uint64_t chunk_values() const { return chunk_of(facts, resolved, settings.chunk_values, chunk_bytes); }
  std::uint64_t buckets(std::uint64_t length) const {
    return length == 0 ? 0 : (facts.bucket == 0 ? 1 : divide_up(length, facts.bucket));
  }
  std::uint32_t inner_order() const { return facts.plain ? infinity : facts.q.value; }
};

/// The calls of one operator over one transport, with the memory that they reuse.
template <class Transport>
class host_call {
 public:
  template <class Operator>
  host_call(Transport& workers, Operator const& op, call_setup const& setup, kernel::host_executor const& on)
      : workers_(workers),
        setup_(setup),
        on_(on),
        codec_(make_codec(op, setup.facts, setup.resolved, on)),
        memory_(std::make_shared<workspace>()) {}

  template <class Schedule>
  void run(Schedule const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
           std::uint64_t step) {
    guarded([&] { exchange(schedule, x, y, length, step); });
  }

  /// The same for several vectors; vector k draws the random bits of step + k.
  template <class Schedule>
  void run_group(Schedule const& schedule, std::span<vector_group::member const> members,
                 std::uint64_t step) {
    guarded([&] { exchange_group(schedule, members, step); });
  }

  void set_levels(levels::detail::level_table const& levels) {
    codec_->set_levels(levels);
    setup_.levels_hash = level_hash(levels);
  }

 private:
  template <class F>
  void guarded(F const& f) {
    kernel::float_environment const exact;
    try {
      f();
    } catch (transport_error const&) {
      give_up_memory();
      throw;
    } catch (frame_error const&) {  // found while other frames travel
      give_up_memory();
      throw;
    }
  }

  /// A transfer may still be under way: the transport keeps the memory that it could touch.
  void give_up_memory() {
    if constexpr (transport::OwnRetain<Transport>) {
      workers_.retain(memory_);
      memory_ = std::make_shared<workspace>();
    }
  }

  /// Everything a transfer may still touch when a call is given up.
  struct workspace {
    frame_pool frames;
    std::vector<opening_record> records;
  };

  template <class Schedule>
  void exchange(Schedule const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
                std::uint64_t step) {
    int const n = workers_.size();
    std::uint64_t const buckets = setup_.buckets(length);
    layout const cut(length, schedule.parts(n), grain_of(setup_.facts), setup_.chunk_values());
    segment const written = writes_of(schedule, cut, workers_.rank());
    decision const d = open(schedule, x, length, reads_of(schedule, cut, workers_.rank()), step);
    auto const fill_result = [&](bool nan) { fill(at(y, written.first), written.count, nan); };
    conclude(d, y.type, fill_result, [&] {
      scale_buckets(x.type, buckets, d, scale_rule(setup_.facts, x.type).by_bucket);
      call c = common_call(gathers<Schedule> ? 1 : n, step, d, x.type);
      c.x = x;
      c.y = y;
      c.length = length;
      c.units = scales(buckets);
      codec_->begin(c);
      schedule(workers_, *codec_, cut, memory_->frames);
      return codec_->faults();
    });
  }

  template <class Schedule>
  void exchange_group(Schedule const& schedule, std::span<vector_group::member const> members,
                      std::uint64_t step) {
    int const n = workers_.size();
    std::uint64_t const grain = grain_of(setup_.facts);
    places_.place(members, grain, setup_.facts.bucket);
    std::uint64_t const buckets = places_.buckets();
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    std::uint64_t lengths = members.size(), values = 0;
    for (std::size_t k = 0; k < members.size(); ++k) {
      auto const& m = members[k];
      measure(m.x, m.length, places_.first_bucket(k));
      lengths = hash(lengths, m.length);
      values += m.length;
    }
    dtype const type = members.empty() ? dtype::float32 : members[0].x.type;
    scale_rule rule(setup_.facts, type);
    rule.by_bucket = !rule.plain && rule.fixed_unit == 0;  // a vector without buckets is one
    decision const d =
        agree(schedule, type, hash(lengths, std::uint64_t{1}), values, buckets, 0.0, rule, step);
    auto const fill_result = [&](bool nan) {
      for (auto const& m : members) fill(m.y, m.length, nan);
    };
    conclude(d, type, fill_result, [&] {
      scale_buckets(type, buckets, d, rule.by_bucket);
      call c = common_call(n, step, d, type);
      c.x.type = c.y.type = type;
      group_.begin(*codec_, c, members, places_, scales(buckets));
      schedule(workers_, group_, layout(places_.length(), schedule.parts(n), grain, setup_.chunk_values()),
               memory_->frames);
      return group_.faults();
    });
  }

  /// Does what the records come to.
  /// @param fill_result  fill_result(nan): writes zeros, or NaN, to all of the result
  /// @param send         makes the result; returns the faults of the kernels
  template <class Fill, class Send>
  void conclude(decision const& d, dtype type, Fill const& fill_result, Send const& send) {
    auto const not_finite = [&](std::string const& why, bool changed) {
      if (setup_.settings.non_finite == non_finite::error)
        throw non_finite_error(non_finite_text(setup_.operation, why, changed));
      fill_result(true);
    };
    if (d.what == outcome::not_finite) return not_finite(brought_text(d.who), false);
    if (d.what == outcome::beyond_unit)
      throw configuration_error(beyond_unit_text(setup_.operation, d.top, setup_.facts.fixed_unit));
    if (d.what == outcome::zero) return fill_result(false);
    if ((send() & kernel::out_of_range) != 0) not_finite(beyond_range_text(type), true);
  }

  /// What of a call does not depend on its vectors.
  call common_call(int workers, std::uint64_t step, decision const& d, dtype type) const {
    call c;
    plain_scale const plain = plain_scale_of(d.top, workers_.size(), type);
    c.plain_unit = plain.unit;
    c.plain_wide = plain.wide;
    c.rank = workers_.rank();
    c.workers = workers;
    c.seed = setup_.settings.seed;
    c.step = step;
    c.wide = d.wide;
    return c;
  }
  std::span<double const> scales(std::uint64_t buckets) const {
    return std::span<double const>(units_).first(setup_.facts.plain ? 1 : buckets);
  }

  /// The statistics of consecutive buckets.
  void measure(const_vector x, std::uint64_t count, std::uint64_t first_bucket) {
    std::uint32_t const q = setup_.inner_order();
    norm::bucket_statistics(on_, count, setup_.facts.bucket, q, norm::input_block{x, q},
                            std::span(statistics_).subspan(first_bucket, setup_.buckets(count)), parts_);
  }

  /// One pass over what this worker brings, then the exchange of what it gave.
  /// @throws disagreement_error
  template <class Schedule>
  decision open(Schedule const& schedule, const_vector x, std::uint64_t length, segment brought,
                std::uint64_t step) {
    std::uint32_t const q = setup_.inner_order();
    std::uint64_t const buckets = setup_.buckets(length), bucket = setup_.facts.bucket;
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    if (brought.count != length) std::fill_n(statistics_.begin(), buckets, norm::statistic{});
    measure(at(x, brought.first), brought.count, bucket == 0 ? 0 : brought.first / bucket);
    bool const whole = buckets == 1 && statistics_[0].max_bits < double_infinity;
    return agree(schedule, x.type, 0, length, buckets, whole ? norm::relative_norm(statistics_[0], q) : 0.0,
                 scale_rule(setup_.facts, x.type), step);
  }

  /// The opening exchange.
  /// @param grouping  0, or what tells one list of lengths from another
  template <class Schedule>
  decision agree(Schedule const& schedule, dtype type, std::uint64_t grouping, std::uint64_t length,
                 std::uint64_t buckets, double relative, scale_rule const& rule, std::uint64_t step) {
    int const n = workers_.size();
    std::uint64_t top = 0;
    for (std::uint64_t b = 0; b < buckets; ++b) top = std::max(top, statistics_[b].max_bits);
    agreement agreed(type, hash(setup_.operator_hash, setup_.levels_hash), schedule.facts(n).name, n,
                     setup_.settings.seed, setup_.settings.non_finite, length);
    if (grouping != 0) agreed.fields[0] = hash(agreed.fields[0], grouping);
    opening_record const mine = agreed.record(step, top, relative);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    transport::allgather(workers_, std::as_bytes(std::span(&mine, 1)),
                         std::as_writable_bytes(std::span(records)));
    check_agreement(records, setup_.operation);
    return decide(records.data(), n, rule);
  }

  /// Fills units_ with the scales of this call, in units of 2^wide.
  void scale_buckets(dtype type, std::uint64_t buckets, decision const& d, bool by_bucket) {
    operator_facts const& op = setup_.facts;
    if (units_.size() < buckets) units_.resize(buckets);
    if (!by_bucket) {
      std::fill_n(units_.begin(), buckets, d.unit);
      return;
    }
    for (std::uint64_t b = 0; b < buckets; ++b)
      units_[b] = norm::local_unit(statistics_[b], op.q, type, d.wide);
    if (!op.local) agree_on_units(workers_, std::span(units_).first(buckets), op.p, type, memory_->frames);
  }

  Transport& workers_;
  call_setup setup_;
  kernel::host_executor on_;
  std::unique_ptr<operator_codec> codec_;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> units_;
  group_places places_;
  grouped_codec group_;
  std::shared_ptr<workspace> memory_;
};

}  // namespace globalq::detail
