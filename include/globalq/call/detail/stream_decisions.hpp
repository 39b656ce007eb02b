// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: kernels of a call on a stream that decide, fill results and report errors.

#include "../../kernel/reduction.hpp"
#include "../../kernel/stream.hpp"
#include "../../operator/detail/stream_state.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "opening.hpp"

namespace GLOBALQ_ABI::detail {

/// Writes the record after the statistics, and resets the maximum for the next call.
struct write_record {
  agreement agreed;
  call_step step;
  stream_state* state;
  norm::statistic const* whole;  ///< of the vector, if it is one bucket; else null
  std::uint32_t q;
  opening_record* records;  ///< of all workers; only this worker's is written here
  std::int32_t workers, rank;
  bool maps;  ///< whether stages replace the vector
  GLOBALQ_FUNCTION void operator()(std::uint64_t = 0) const {
    for (int w = 0; w < workers; ++w) records[w].clear();
    bool const relative = whole != nullptr && state->top < double_infinity;
    records[rank] = agreed.record(step(), state->top, relative ? norm::relative_norm(*whole, q) : 0.0);
    state->own_top = maps ? 0 : state->top;
    state->top = 0;
  }
};

struct decide_call {
  opening_record const* records;
  std::int32_t workers;
  scale_rule rule;
  call_step step;
  bool throws;  ///< non_finite::error
  stream_state* state;
  double* scale;
  stream_word* word;
  opening_record* told;  ///< copy of the records for the host
  settle_scales scales;  ///< scales of the call; agreed is null if they are not known yet

  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    decision const d = decide(records, workers, rule);
    state->what = d.what;
    state->agreed.writes = d.what == call_status::mean;
    state->agreed.wide = d.wide;
    state->agreed.top = d.top;
    state->agreed.faults = kernel::none;
    if (!rule.by_bucket) *scale = d.scale;
    if (scales.agreed != nullptr) scales(0);
    word->brought = d.what == call_status::not_finite ? d.who : -1;
    std::uint32_t trouble = stream_word::fine;
    if (step() > random::max_step) trouble = stream_word::bad_step;
    if (d.what == call_status::beyond_scale) trouble = stream_word::beyond_scale;
    if (d.what == call_status::not_finite && throws) trouble = stream_word::not_finite;
    if (d.what == call_status::disagree) trouble = stream_word::disagree;
    if (trouble == stream_word::fine) return;
    state->agreed.writes = false;
    if (!word->is_first(trouble)) return;
    for (int i = 0; i < workers; ++i) told[i] = records[i];
    word->who = d.who;
    word->top = d.top;
    word->note(trouble);
  }
};

/// Clears the statistics of buckets outside this worker's part.
struct no_statistics {
  norm::statistic* statistics;
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const { statistics[b] = norm::statistic{}; }
};

/// Fills the result if there is no mean, reports errors to the host, and increments the step.
struct conclude_call {
  stream_state* state;
  mutable_vector y;
  std::uint64_t length, items;
  call_step step;
  bool throws;
  stream_word* word;

  GLOBALQ_FUNCTION void operator()(std::uint64_t item) const {
    // without a mean, frames were exchanged all the same, with arbitrary contents
    std::uint32_t const faults = state->agreed.writes ? state->agreed.faults : 0;
    bool const overflow = (faults & kernel::out_of_range) != 0;
    bool const not_finite = overflow || state->what == call_status::not_finite;
    if (item == 0) {
      word->non_finite = not_finite;
      if (step.where != nullptr) ++*step.where;
      std::uint32_t trouble = overflow && throws ? stream_word::beyond_range : stream_word::fine;
      if ((faults & (kernel::bad_code | kernel::bad_frame)) != 0) trouble = stream_word::bad_frame;
      // after bad_frame: a wrong sum is an invalid frame to the workers that receive it
      if ((faults & kernel::bad_sum) != 0) trouble = stream_word::bad_sum;
      word->note(trouble);
    }
    bool const nan = !throws && not_finite;
    if (!nan && state->what != call_status::zero) return;
    for (std::uint64_t i = item; i < length; i += items) fill_value(y, i, nan);
  }
};

/// Sums rounding errors and zeros; threads process values in turn. Does nothing if there is no mean.
struct compare_values {
  const_vector x;
  mutable_vector rounded;
  std::uint64_t count, items;
  stream_state const* state;
  block_errors* sums;

  static GLOBALQ_FUNCTION double value(void const* data, dtype type, std::uint64_t i) {
    switch (type) {
      case dtype::float64:
        return static_cast<double const*>(data)[i];
      case dtype::float16:
        return static_cast<double>(float16::widen(static_cast<std::uint16_t const*>(data)[i]));
      case dtype::bfloat16:
        return static_cast<double>(bfloat16::widen(static_cast<std::uint16_t const*>(data)[i]));
      default:
        return static_cast<double>(static_cast<float const*>(data)[i]);
    }
  }
  GLOBALQ_FUNCTION void operator()(std::uint64_t item) const {
    block_errors sum;
    bool const zeros = state->what == call_status::zero;  // nothing is written for zeros
    for (std::uint64_t i = item; (state->agreed.writes || zeros) && i < count; i += items) {
      double const v = value(x.data, x.type, i), r = zeros ? 0.0 : value(rounded.data, rounded.type, i),
                   off = r - v;
      sum.energy += v * v;
      sum.error += off * off;
      sum.zeros += r == 0 ? 1U : 0U;
      ++sum.values;
    }
    sums[item] = sum;
  }
};

/// Clears faults of values that are not part of a result.
struct clear_faults {
  stream_state* state;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { state->agreed.faults = 0; }
};

}  // namespace GLOBALQ_ABI::detail
