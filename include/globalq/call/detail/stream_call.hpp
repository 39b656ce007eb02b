// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: a call over a stream transport; kernels decide, and the stream orders all work.
///
/// Enqueues the same steps as host_call: statistics, records, decision, stages, scales, schedule. Kernels also detect errors,
/// on every worker alike; they record them in pinned memory, and the next call throws.

#include "../../kernel/reduction.hpp"
#include "../../kernel/stream.hpp"
#include "../../kernel/stream_reduction.hpp"
#include "../../operator/detail/stream_state.hpp"
#include "../../operator/stage.hpp"
#include "../../schedule/erased.hpp"
#include "../../telemetry/detail/call_meter.hpp"
#include "../../telemetry/detail/metered_codec.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "../../transport/endpoint.hpp"
#include "engine.hpp"
#include "opening.hpp"
#include "rounding_errors.hpp"
#include "setup.hpp"
#include "stream_decisions.hpp"
#include "used_steps.hpp"

namespace GLOBALQ_ABI::detail {

/// The calls of one operator over one transport, with the memory that they reuse.
template <class Space>
class stream_call {
 public:
  using space = Space;
  using executor = kernel::stream_executor<space>;
  using memory_space = typename space::memory_space;

  stream_call(transport::stream_endpoint<Space>& workers, call_setup const& setup, executor const& on,
              std::unique_ptr<operator_codec> codec)
      : workers_(workers),
        setup_(setup),
        on_(on),
        codec_(std::move(codec)),
        meter_(setup.settings.telemetry, [this] { settle(); }) {
    told_ = told_memory_.get_values<opening_record>(static_cast<std::uint64_t>(workers_.size()));
    records_ = records_memory_.get_values<opening_record>(static_cast<std::uint64_t>(workers_.size()));
    state_ = state_memory_.get_values<stream_state>(1);
  }
  stream_call(stream_call const&) = delete;
  stream_call& operator=(stream_call const&) = delete;
  ~stream_call() {
    report_unclaimed([this, heard = broken_] {
      try {
        settle_and_check();
      } catch (transport_error const&) {
        if (!heard) throw;
      }
    });
    on_.fence();  // kernels may still use members; transfers have ended or were given up
  }

  void set_levels(levels::detail::level_table const& levels) {
    codec_->set_levels(levels);
    take_values(setup_.facts, levels);
  }

  /// Enqueues a call. The first call with a length and type blocks the host once.
  /// @throws the error of an earlier call
  void run(schedule::erased const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
           call_step step) {
    throw_trouble();
    if (std::string const why = type_refusal(setup_.facts, y.type); !why.empty())
      throw configuration_error(worker_message(setup_.operation, workers_.rank(), workers_.size(), why));
    if (kept_on_stream* const kept = codec_->kept()) {
      std::string const why = kept->refusal(length, mapped_type(x.type), [this] { settle(); });
      if (!why.empty())
        throw configuration_error(worker_message(setup_.operation, workers_.rank(), workers_.size(), why));
    }
    bool const capturing = on_.capturing();
    // no report of a captured call: that would block
    if (capturing) return enqueue(schedule, x, y, length, step, capturing);
    if (step.where == nullptr && setup_.facts.rounds()) {
      std::string const why = used_.refusal(step.value, 1, step.value);
      if (!why.empty())
        throw configuration_error(worker_message(setup_.operation, workers_.rank(), workers_.size(), why));
      used_.add(step.value, 1);
    }
    noting_failure([&] {
      auto const watched = meter_.watch(workers_, setup_.operation, step.where == nullptr ? step.value : 0,
                                        length, !setup_.facts.rounds());
      enqueue(schedule, x, y, length, step, capturing);
      if (!meter_.waits()) return;
      settle();
      meter_.report().failed = good() ? 0 : 1;  // the next call throws it
      if (report_.word()->non_finite) meter_.not_finite(report_.word()->brought);
    });
  }

  /// Blocks until all enqueued work has run.
  /// @throws the error of a call; transport_error
  void wait() { settle_and_check(); }

  bool good() const { return report_.good(); }

  /// The configuration of the constructor, with the levels of the next call.
  call_setup const& setup() const { return setup_; }

  /// Residuals of an operator with error feedback, after all enqueued calls.
  residuals kept() {
    kept_on_stream* const kept = codec_->kept();
    return kept == nullptr ? residuals() : kept->save([this] { settle(); });
  }
  void load(residuals from) {
    if (kept_on_stream* const kept = codec_->kept()) kept->load(from, [this] { settle(); });
  }
  void forget() {
    if (kept_on_stream* const kept = codec_->kept()) kept->forget();
  }

 private:
  /// Numbers of threads that fill results, and that compare values.
  static constexpr std::uint64_t most_concluding = 1U << 16, most_comparing = 1U << 12;

  /// Waits for all enqueued work. Errors that kernels found take precedence over a worker's departure for the same
  /// reason.
  void settle_and_check() {
    try {
      settle();
    } catch (transport_error const&) {
      broken_ = true;
      if (good()) throw;
    }
    throw_trouble();
  }

  /// Runs an action, and records if it throws transport_error, so that the destructor does not report it again.
  template <class Action>
  void noting_failure(Action const& action) {
    try {
      action();
    } catch (transport_error const&) {
      broken_ = true;
      throw;
    }
  }

  /// Blocks until all enqueued work has run, or until the deadline of a transport that has one.
  void settle() {
    if (!workers_.synchronize()) on_.fence();
  }

  /// Enqueues all steps of a call.
  void enqueue(schedule::erased const& schedule, const_vector x, mutable_vector y, std::uint64_t length,
               call_step step, bool capturing) {
    bool const known = seen(length, x.type);
    if (capturing && !known) kernel::refuse_unprepared_capture(on_.operation());
    if (capturing && step.where == nullptr)
      fail<configuration_error>(
          {"globalq: ", setup_.operation,
           ": a graph is being captured with a step number of the host, so every replay would draw the same "
           "random bits; pass a view of one std::uint64_t, or a pointer to one, in the memory of the "
           "stream"});
    if (capturing && codec_->head_bytes() != 0)
      fail<configuration_error>({"globalq: ", setup_.operation,
                                 ": a graph is being captured, and frames of this wire format differ in "
                                 "length, which the host must read before it sends them; use wire::packed or "
                                 "wire::int8 in graphs"});
    int const n = workers_.size();
    std::uint64_t const buckets = setup_.buckets(length);
    partition const cut(length, schedule.parts(n), grain_of(setup_.facts), setup_.chunk_values());
    segment const written = schedule.writes(cut, workers_.rank());
    segment const brought = schedule.reads(cut, workers_.rank());
    on_.expect_own_device(setup_.operation, at(x, brought.first).data, brought.count);
    if (step.where != nullptr) on_.expect_own_device(setup_.operation, step.where, 1, "step");
    on_.expect_own_device(setup_.operation, at(y, written.first).data, written.count);
    if (!known) settle();  // growing frees memory, for which CUDA waits without a deadline
    if (!known) on_.items(1, reset_state{state_});
    double* const bucket_scales = scales_memory_.get_values<double>(std::max<std::uint64_t>(buckets, 1));
    bool const enters = !setup_.facts.chain.empty();
    // the decision also settles the scale of a whole vector, unless stages map it later
    double const extent = enters || scale_rule(setup_.facts, x.type).by_bucket ? 0.0 : codec_->extent();
    bool const settles = extent > 0;
    codec_call c;
    c.x = x;
    c.y = y;
    c.length = length;
    c.rank = workers_.rank();
    if (schedule.averages) c.average(n);
    c.seed = setup_.settings.seed;
    c.step = step.value;
    c.step_at = step.where;
    c.bucket_scales = std::span<double const>(bucket_scales, buckets);
    c.agreed = &state_->agreed;
    c.settled = settles;
    c.wait = [this] { settle(); };
    kept_on_stream* const kept = codec_->kept();
    bool const compares = meter_.wants_errors() && setup_.facts.rounds();
    bool const measured = !compares && !enters && measure_first(schedule, c, cut, brought, bucket_scales);
    open(c, brought, cut.chunk(), step, bucket_scales,
         {settles ? &state_->agreed : nullptr, bucket_scales, x.type, extent, c.workers}, measured);
    if (!known || workers_.host_driven()) {
      settle_and_check();
    }
    if (length != 0) {
      if (!measured) {
        if (enters) c.x = enter(c, brought);
        scale_buckets(c.x.type, x.type, buckets, bucket_scales);
        if (compares) {
          c.settled = false;
          measure_errors(c, kept == nullptr ? x : kept->entered(), cut, schedule.parts(n), brought);
        }
        c.keeps = kept != nullptr;
        codec_->begin(c);
      }
      run_metered(meter_, schedule, workers_, *codec_, cut, frames_);
      if (kept != nullptr) kept->commit(state_);
    }
    std::uint64_t const items = std::clamp<std::uint64_t>(written.count / 16, 1, most_concluding);
    on_.items(items, conclude_call{state_, at(y, written.first), written.count, items, step, throws(),
                                   report_.word()});
    if (!known) seen_.push_back({length, x.type});
  }

  /// Measures bucket norms of one worker while encoding the schedule's first frames, so that values are read once.
  /// @returns false if that takes two passes
  bool measure_first(schedule::erased const& schedule, codec_call const& c, partition const& cut,
                     segment brought, double* bucket_scales) {
    if (brought.count != c.length || !codec_->measures(c.x.type)) return false;
    std::vector<unsent>& all =
        frames_.unsent_frames(static_cast<std::size_t>(2 * schedule.parts(workers_.size())));
    codec_->note(c);
    schedule.leaves(cut, workers_.size(), c.rank, *codec_, frames_, all);
    if (all.empty()) return false;
    auto const timed = meter_.enter(phase::norm);
    codec_->begin(c);
    // also measures values that are added to other frames later
    for (std::size_t i = 0, from = all.size(); i <= from; ++i) {
      std::uint64_t const end = i < from ? all[i].part.first : c.length,
                          at = i == 0 ? 0 : all[i - 1].part.first + all[i - 1].part.count;
      if (at < end) all.push_back({{at, end - at}, {}});
    }
    std::sort(all.begin(), all.end(),
              [](unsent const& a, unsent const& b) { return a.part.first < b.part.first; });
    codec_->measure_all(all, bucket_scales, &state_->top);
    return true;
  }

  /// Adds the rounding errors of this worker's values to the report.
  /// @param given  the vector before stages
  void measure_errors(codec_call const& c, const_vector given, partition const& cut, int parts,
                      segment brought) {
    vector_group::member const mine{c.x, {}, c.length};
    auto const begin = [&](std::span<vector_group::member const> alone) -> codec& {
      codec_call own = c;
      own.workers = 1;
      own.y = alone[0].y;
      codec_->begin(own);
      return *codec_;
    };
    auto const compare = [&](const_vector x, mutable_vector rounded, std::uint64_t count) {
      std::uint64_t const items = std::min(count, most_comparing);
      block_errors* const sums = errors_memory_.get_values<block_errors>(items);
      on_.items(items, compare_values{x, rounded, count, items, state_, sums});
      on_.items(1, clear_faults{state_});
      settle();
      for (std::uint64_t i = 0; i < items; ++i) add_errors(sums[i], meter_.report());
    };
    rounding_.measure(cut, parts, brought, c.rank, {&mine, 1}, {&given, 1}, true, begin, compare);
  }

  /// Maps the vector by the stages, and measures it. Returns the mapped vector.
  const_vector enter(codec_call const& c, segment brought) {
    auto const timed = meter_.enter(phase::norm);
    dtype const type = mapped_type(c.x.type);
    const_vector const mapped =
        enter_stages(on_, *codec_, c, brought, {mapped_memory_.get(c.length * size_of(type)).data(), type});
    std::uint64_t const bucket = setup_.facts.bucket;
    norm::enqueue_statistics(on_, at(mapped, brought.first), brought.count, bucket, setup_.inner_order(),
                             tree_, statistics_ + (bucket == 0 ? 0 : brought.first / bucket),
                             setup_.facts.q.format(type).two_level() ? &state_->own_top : nullptr);
    return mapped;
  }

  bool throws() const { return setup_.settings.non_finite == non_finite::error; }

  bool seen(std::uint64_t length, dtype type) const {
    return std::any_of(seen_.begin(), seen_.end(),
                       [&](auto const& s) { return s.length == length && s.type == type; });
  }

  /// Computes statistics, exchanges records, and decides.
  /// @param measured  the maximum is already known
  void open(codec_call const& c, segment brought, std::uint64_t chunk, call_step step, double* bucket_scales,
            settle_scales const& scales, bool measured) {
    const_vector const x = c.x;
    std::uint64_t const length = c.length;
    int const n = workers_.size();
    std::uint32_t const q = setup_.inner_order();
    std::uint64_t const bucket = setup_.facts.bucket, buckets = setup_.buckets(length);
    statistics_ = statistics_memory_.get_values<norm::statistic>(std::max<std::uint64_t>(buckets, 1));
    if (brought.count != length) on_.items(buckets, no_statistics{statistics_});
    agreement const agreed(x.type, hash(setup_.operator_hash, setup_.facts.levels), setup_.schedule_hash, n,
                           {chunk}, setup_.settings.seed, setup_.settings.non_finite, length);
    bool const whole = !measured && buckets == 1 && setup_.facts.chain.empty();
    write_record const record{agreed,   step, state_,          whole ? statistics_ : nullptr, q,
                              records_, n,    workers_.rank(), !setup_.facts.chain.empty()};
    if (measured) {
      on_.items(1, record);
    } else {
      auto const timed = meter_.enter(phase::norm);
      auto const measure = [&](auto const&... then) {
        norm::enqueue_statistics(on_, at(x, brought.first), brought.count, bucket, q, tree_,
                                 statistics_ + (bucket == 0 ? 0 : brought.first / bucket), &state_->top,
                                 then...);
      };
      if (kept_on_stream* const kept = codec_->kept()) {
        measure();
        kept->raise(c, &state_->top);
        on_.items(1, record);
      } else {
        measure(record);
      }
    }
    auto const timed = meter_.enter(phase::opening);
    transport::allgather(workers_, std::as_bytes(std::span(records_ + workers_.rank(), 1)),
                         std::as_writable_bytes(std::span(records_, static_cast<std::size_t>(n))));
    on_.items(1, decide_call{records_, n, scale_rule(setup_.facts, x.type), step, throws(), state_,
                             bucket_scales, report_.word(), told_, scales});
  }

  /// @param type  of the encoded vector
  /// @param sent  norms are exchanged in its width
  void scale_buckets(dtype type, dtype sent, std::uint64_t buckets, double* bucket_scales) {
    operator_facts const& op = setup_.facts;
    bool const by_bucket = scale_rule(op, type).by_bucket;
    if (by_bucket || buckets > 1)
      on_.items(buckets, find_bucket_scales{state_, by_bucket ? statistics_ : nullptr, op.q, type,
                                            bucket_scales, &state_->own_top});
    if (!by_bucket || op.local) return;
    auto const timed = meter_.enter(phase::opening);
    agree_on_scales(workers_, std::span(bucket_scales, buckets), op.p, sent, frames_, on_);
  }

  /// Throws an error that kernels found, once.
  void throw_trouble() {
    if (good()) return;
    std::span<opening_record const> const told(told_, static_cast<std::size_t>(workers_.size()));
    try {
      settle();
    } catch (transport_error const&) {
      broken_ = true;
      bool const all_arrived =
          std::all_of(told.begin(), told.end(), [](opening_record const& r) { return r.arrived(); });
      // errors found by kernels are more specific, but a missing worker is not a disagreement
      if (report_.word()->trouble == stream_word::disagree && !all_arrived) {
        report_.take();
        throw;
      }
    }
    stream_word const word = report_.take();
    std::string const late = workers_.host_driven() ? "" : report_.late;
    switch (word.trouble) {
      case stream_word::disagree:
        check_agreement(told, setup_.operation, setup_.forced);
        break;
      case stream_word::not_finite:
        meter_.not_finite(word.who);
        throw non_finite_error(non_finite_text(setup_.operation, brought_text(word.who), false) + late);
      case stream_word::beyond_scale:
        throw configuration_error(beyond_scale_text(setup_.operation, word.top, setup_.facts.fixed_scale) +
                                  late);
      case stream_word::beyond_range:
        meter_.not_finite(-1);
        throw non_finite_error(
            non_finite_text(setup_.operation, "a value of the mean exceeds the range of its type", true) +
            late);
      case stream_word::bad_sum:
        throw configuration_error(bad_sum_text(setup_.operation, workers_.rank()) + late);
      case stream_word::bad_step:
        fail<configuration_error>({"globalq: ", setup_.operation,
                                   ": a step is above 2^48 - 1; count steps from 0 and change the seed "
                                   "instead",
                                   late});
      default:
        fail<frame_error>({"globalq: ", setup_.operation, ": rank ", workers_.rank(), " of ", workers_.size(),
                           ": a received frame is corrupt or was made by another operator, the output is "
                           "unspecified; use the same operator on every worker",
                           late});
    }
  }

  struct averaged {
    std::uint64_t length;
    dtype type;
  };

  transport::stream_endpoint<Space>& workers_;
  call_setup setup_;
  executor on_;
  std::unique_ptr<operator_codec> codec_;
  used_steps used_;
  call_meter meter_;
  std::vector<averaged> seen_;
  stream_report<space> report_{on_};
  byte_buffer told_memory_{on_.pinned_memory()};
  byte_buffer records_memory_{on_.memory()};
  byte_buffer state_memory_{on_.memory()};
  byte_buffer scales_memory_{on_.memory()};
  byte_buffer statistics_memory_{on_.memory()};
  byte_buffer mapped_memory_{on_.memory()};  ///< what stages make of vectors
  norm::statistics_memory tree_{on_.memory()};
  byte_buffer errors_memory_{on_.pinned_memory()};
  frame_pool frames_{on_.memory()};
  own_rounding rounding_{on_.memory()};  ///< for telemetry
  opening_record *told_ = nullptr, *records_ = nullptr;
  stream_state* state_ = nullptr;
  norm::statistic* statistics_ = nullptr;
  bool broken_ = false;  ///< whether the transport failed and that was thrown
};

template <class Place>
requires(!std::is_same_v<Place, Kokkos::HostSpace>) struct engine_at<Place> {
  using type = stream_call<Place>;
};

}  // namespace GLOBALQ_ABI::detail
