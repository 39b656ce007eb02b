// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: a call over a transport that moves host memory, decided and driven by the calling thread.

#include "../any_quantizer.hpp"
#include "../norm/reduction.hpp"
#include "../plan.hpp"
#include "../transport/collectives.hpp"
#include "opening.hpp"

namespace globalq::detail {

/// What is fixed when an allreduce_mean is made.
struct call_setup {
  options settings;
  operator_facts facts;
  resolution resolved;
  std::uint64_t operator_hash = 0;
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
    kernel::float_environment const exact;
    try {
      exchange(schedule, x, y, length, step);
    } catch (transport_error const&) {
      // a transfer may still be under way: the transport keeps the memory that it could touch
      if constexpr (transport::OwnRetain<Transport>) {
        workers_.retain(memory_);
        memory_ = std::make_shared<workspace>();
      }
      throw;
    }
  }

 private:
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
    decision const d = open(schedule, x, length, buckets, step);
    switch (d.what) {
      case outcome::not_finite:
        return fail_non_finite(y, length, brought_text(d.who), false);
      case outcome::beyond_unit:
        throw configuration_error(beyond_unit_text(d.top, setup_.facts.fixed_unit));
      case outcome::zero:
        return fill(y, length, false);
      default:
        break;
    }
    scale_buckets(x.type, buckets, d);

    call c;
    c.x = x;
    c.y = y;
    c.length = length;
    c.rank = workers_.rank();
    c.workers = n;
    c.seed = setup_.settings.seed;
    c.step = step;
    c.units = std::span<double const>(units_).first(setup_.facts.plain ? 1 : buckets);
    c.wide = d.wide;
    codec_->begin(c);
    schedule(workers_, *codec_,
             layout(length, schedule.parts(n), grain_of(setup_.facts), setup_.chunk_values()),
             memory_->frames);
    if ((codec_->faults() & kernel::out_of_range) != 0)
      fail_non_finite(y, length, beyond_range_text(y.type), true);
  }

  /// One pass over the input, then the exchange of what it gave.
  /// @throws disagreement_error
  template <class Schedule>
  decision open(Schedule const& schedule, const_vector x, std::uint64_t length, std::uint64_t buckets,
                std::uint64_t step) {
    int const n = workers_.size();
    std::uint32_t const q = setup_.inner_order();
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    norm::bucket_statistics(on_, length, setup_.facts.bucket, q, norm::input_block{x, q},
                            std::span(statistics_).first(buckets), parts_);
    std::uint64_t top = 0;
    for (std::uint64_t b = 0; b < buckets; ++b) top = std::max(top, statistics_[b].max_bits);
    bool const whole = buckets == 1 && top < double_infinity;
    agreement const agreed(x.type, setup_.operator_hash, schedule.facts(n).name, n, setup_.settings.seed,
                           setup_.settings.non_finite, length);
    opening_record const mine =
        agreed.record(step, top, whole ? norm::relative_norm(statistics_[0], q) : 0.0);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    transport::allgather(workers_, std::as_bytes(std::span(&mine, 1)),
                         std::as_writable_bytes(std::span(records)));
    check_agreement(records);
    return decide(records.data(), n, scale_rule(setup_.facts, x.type));
  }

  /// Fills units_ with the scales of this call, in units of 2^wide.
  void scale_buckets(dtype type, std::uint64_t buckets, decision const& d) {
    operator_facts const& op = setup_.facts;
    if (units_.size() < buckets) units_.resize(buckets);
    if (!scale_rule(op, type).by_bucket) {
      std::fill_n(units_.begin(), buckets, d.unit);
      return;
    }
    for (std::uint64_t b = 0; b < buckets; ++b)
      units_[b] = norm::local_unit(statistics_[b], op.q, type, d.wide);
    if (!op.local) agree_on_units(workers_, std::span(units_).first(buckets), op.p, type, memory_->frames);
  }

  void fail_non_finite(mutable_vector y, std::uint64_t length, std::string const& why, bool changed) {
    if (setup_.settings.non_finite == non_finite::error)
      throw non_finite_error(non_finite_text(why, changed));
    fill(y, length, true);
  }

  Transport& workers_;
  call_setup setup_;
  kernel::host_executor on_;
  std::unique_ptr<operator_codec> codec_;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> units_;
  std::shared_ptr<workspace> memory_;
};

}  // namespace globalq::detail
