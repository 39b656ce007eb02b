// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the state that kernels of a call on a stream share with each other and with the host.

#include "../../core/detail/call_status.hpp"
#include "../../core/error.hpp"
#include "../../core/vector.hpp"
#include "../../kernel/load_store.hpp"
#include "../../kernel/stream.hpp"
#include "../../kernel/stream_reduction.hpp"
#include "operator_codec.hpp"

#include <iostream>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// The address of a step in memory that the stream can access.
/// @param who  the start of errors
template <StepPlace Step>
std::uint64_t* address_of_step(char const* who, Step const& step) {
  if constexpr (StepPointer<Step>) {
    if (step == nullptr) fail<configuration_error>({who, "the step is a null pointer"});
    return reinterpret_cast<std::uint64_t*>(step);
  } else {
    if (step.size() != 1)
      fail<configuration_error>(
          {who, "the step is a view of ", step.size(), " values; pass one of a single value"});
    return step.data();
  }
}

/// The errors of calls on a stream, for the host, in pinned memory. The first error stays until it is thrown.
struct stream_word {
  enum : std::uint32_t {
    fine,
    disagree,
    not_finite,
    beyond_scale,
    beyond_range,
    bad_frame,
    bad_step,
    bad_sum
  };
  std::uint32_t trouble = fine;
  std::int32_t who = 0;
  bool non_finite = false;    ///< the result of the last call is not finite
  std::int32_t brought = -1;  ///< the rank whose input contains NaN or infinity; -1: none
  double top = 0;

  /// Whether this is the first error. Write details before note(), because the host may read them at any time.
  GLOBALQ_FUNCTION bool is_first(std::uint32_t found) const { return found != fine && trouble == fine; }
  GLOBALQ_FUNCTION void note(std::uint32_t found) {
    if (is_first(found)) trouble = found;
  }
};

/// The host's view of a stream_word.
template <class Space>
class stream_report {
 public:
  explicit stream_report(kernel::stream_executor<Space> const& on)
      : memory_(on.pinned_memory()), word_(memory_.get_values<stream_word>(1)) {
    *word_ = {};
  }

  stream_word* word() const { return word_; }
  bool good() const {
    return *static_cast<std::uint32_t volatile const*>(&word_->trouble) == stream_word::fine;
  }
  /// Returns the error and clears it. @pre all kernels that may report an error have run
  stream_word take() { return std::exchange(*word_, stream_word{}); }

  static constexpr char const* late = " (found on the stream, in this call or an earlier one)";

 private:
  byte_buffer memory_;
  stream_word* word_;
};

/// Writes an error that @p check throws to std::cerr. For destructors, which cannot throw it.
template <class Check>
void report_unclaimed(Check const& check) noexcept {
  try {
    check();
  } catch (std::exception const& e) {
    std::cerr << e.what() << "; no call and no wait() followed that could have thrown this" << std::endl;
  }
}

/// The state that kernels of a call share.
struct stream_state {
  kernel::agreed_call agreed;
  call_status what = call_status::mean;
  std::uint64_t top = 0;      ///< bit pattern of max|x|
  std::uint64_t own_top = 0;  ///< that of the vector that this worker encodes
};

struct reset_state {
  stream_state* state;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { *state = stream_state{}; }
};

/// Begins work of a call with another number of workers or other scales, whose faults are counted apart.
struct begin_apart {
  kernel::agreed_call const* from;
  stream_state* to;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    *to = stream_state{};
    to->agreed = *from;
    to->agreed.faults = kernel::none;
  }
};

/// Converts 16-bit values to float.
struct widen_values {
  const_vector x;
  std::uint64_t first;
  float* to;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    float buffer[1];
    to[first + i] = *kernel::load<1>(x, first + i, 1, 0, buffer);
  }
};

/// Enqueues the stages of an operator for a part of the vector of a call.
/// @param room  for mapped values
/// @returns the mapped vector
template <class Space>
const_vector enter_stages(kernel::stream_executor<Space> const& on, operator_codec& codec,
                          codec_call const& c, segment part, mutable_vector room) {
  const_vector x = c.x;
  if (x.type != room.type) {
    on.items(part.count, widen_values{x, part.first, static_cast<float*>(room.data)});
    x = {room.data, room.type};
  }
  codec.enter(c, x, part, room);
  return {room.data, room.type};
}

/// Computes factors from the scale of the whole vector, for the following kernels.
struct settle_scales {
  kernel::agreed_call* agreed;
  double const* bucket_scales;
  dtype type;
  double extent;
  int workers;
  double weight = 1;  ///< of the mean
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    double const scale = bucket_scales[0], of_mean = scale * weight;
    agreed->whole = kernel::input_scale_of(type, scale, agreed->wide, extent);
    agreed->mean = kernel::mean_scale(of_mean, agreed->wide, extent * static_cast<double>(workers));
    agreed->single = kernel::mean_scale(of_mean, agreed->wide, extent);
  }
};

/// Computes the scales of buckets: from their own norms, or one for all buckets.
struct find_bucket_scales {
  stream_state* state;
  norm::statistic const* statistics;  ///< null: all buckets have the first scale
  norm::order q;
  dtype type;
  double* bucket_scales;
  std::uint64_t const* top;  ///< bit pattern of the largest magnitude of the vector
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    if (statistics != nullptr)
      bucket_scales[b] =
          statistics[b].finite() ? norm::local_scale(statistics[b], q, type, state->agreed.wide) : 0.0;
    else if (b != 0)
      bucket_scales[b] = bucket_scales[0];
    scale_format const form = q.format(type);
    if (statistics == nullptr || !form.two_level()) return;
    double const vector_scale = *top < double_infinity ? vector_scale_of(double_of(*top), form) : 0.0;
    bucket_scales[b] = block_scale_of(bucket_scales[b], vector_scale, form);
    if (b == 0) state->agreed.vector_scale = vector_scale;
  }
};

}  // namespace GLOBALQ_ABI::detail
