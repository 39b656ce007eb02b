// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what the kernels of a call on a stream tell each other, and the host.

#include "../../core/detail/call_status.hpp"
#include "../../kernel/stream.hpp"
#include "../../kernel/stream_reduction.hpp"

#include <iostream>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// The number of a call, or where it is found.
struct call_step {
  std::uint64_t value = 0;
  std::uint64_t* where = nullptr;  ///< in the memory of the stream: read, and counted up at the end
  GLOBALQ_FUNCTION std::uint64_t operator()() const { return where != nullptr ? *where : value; }
};

/// What the host hears of calls on a stream, in pinned memory. The first trouble stays until it was thrown.
struct stream_word {
  enum : std::uint32_t { fine, disagree, not_finite, beyond_scale, beyond_range, bad_frame, bad_step };
  std::uint32_t trouble = fine;
  std::int32_t who = 0;
  bool non_finite = false;    ///< of the last call: there is no finite result,
  std::int32_t brought = -1;  ///< and which rank brought NaN or infinity; -1: none
  double top = 0;

  /// Whether what was found is the first trouble. Details are written before note(): the host may look at any time.
  GLOBALQ_FUNCTION bool is_first(std::uint32_t found) const { return found != fine && trouble == fine; }
  GLOBALQ_FUNCTION void note(std::uint32_t found) {
    if (is_first(found)) trouble = found;
  }
};

/// The host's side of it.
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
  /// What was found, once. @pre all that may still find something has run
  stream_word take() { return std::exchange(*word_, stream_word{}); }

  static constexpr char const* late = " (found on the stream, in this call or an earlier one)";

 private:
  byte_buffer memory_;
  stream_word* word_;
};

/// Writes what @p check throws to std::cerr, for an object that goes: nothing is left that could throw it.
template <class Check>
void report_unclaimed(Check const& check) noexcept {
  try {
    check();
  } catch (std::exception const& e) {
    std::cerr << e.what() << "; no call and no wait() followed that could have thrown this" << std::endl;
  }
}

/// What kernels of a call tell each other.
struct stream_state {
  kernel::agreed_call agreed;
  call_status what = call_status::mean;
  std::uint64_t top = 0;  ///< bit pattern of max|x|
};

struct reset_state {
  stream_state* state;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { *state = stream_state{}; }
};

/// What the scale of the whole vector comes to, for the kernels that follow.
struct settle_scales {
  kernel::agreed_call* agreed;
  double const* units;
  dtype type;
  double extent;
  int workers;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    agreed->whole = kernel::input_scale_of(type, units[0], agreed->wide, extent);
    agreed->mean = kernel::mean_scale(units[0], agreed->wide, extent * static_cast<double>(workers));
    agreed->single = kernel::mean_scale(units[0], agreed->wide, extent);
  }
};

/// The scales of buckets: own norms, or the one unit that all have.
struct scale_units {
  stream_state const* state;
  norm::statistic const* statistics;  ///< null: all have the first
  norm::order q;
  dtype type;
  double* units;
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    if (statistics != nullptr)
      units[b] = statistics[b].finite() ? norm::local_unit(statistics[b], q, type, state->agreed.wide) : 0.0;
    else if (b != 0)
      units[b] = units[0];
  }
};

}  // namespace GLOBALQ_ABI::detail
