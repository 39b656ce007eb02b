// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the papers' "fake compression": sends the first N / gamma values only.

#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"

#include <cmath>

namespace GLOBALQ_ABI::baseline {

/// Parameters of send_first; the same on every worker.
struct send_first_options {
  double gamma = 8;  ///< at least 1: one value in gamma is sent
};

/// @brief Averages the first ceil(size / gamma) values of every layer in float32; the mean of the others is zero.
///
/// It costs no computation, so its speed is an upper bound for any method with ratio gamma. It is not for training, and
/// does not contract: a vector may be zero in all values that are sent.
/// @complexity  bytes sent: those of the schedule for d / gamma float32 values
/// @determinism bit-identical on all workers
/// @source Markov 2024 (thesis), chapters 3 and C.1: "fake compression"
template <class Schedule = schedule::scatter_reduce_allgather>
class send_first {
 public:
  /// @throws configuration_error unless gamma is at least 1, and for a layer that is not float32
  explicit send_first(adapt::model_layout layers, send_first_options const& how = {},
                      options const& settings = {}, Schedule schedule = {})
      : schedule_(std::move(schedule)),
        caller_("send_first", std::move(layers), settings, detail::hash_of(0, how.gamma),
                schedule::detail::text_of(schedule_), sizeof(float)) {
    if (!(how.gamma >= 1))
      throw configuration_error("globalq: send_first: gamma is " + std::to_string(how.gamma) +
                                "; use 1 (all values) or more");
    for (adapt::layer const& l : caller_.layers()) {
      double const share =
          computed_exactly([&] { return std::ceil(static_cast<double>(l.size) / how.gamma); });
      std::uint64_t const count = std::min(l.size, static_cast<std::uint64_t>(share));
      if (count != 0) sent_.push_back({l.offset, count});
      total_ += count;
    }
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }
  /// The number of values that are sent.
  std::uint64_t count() const { return total_; }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(workers, on, x, mean, rest, step, caller_.largest(on, x),
                        [&](auto const& o, auto left) {
                          values_.resize(total_);
                          float const share = static_cast<float>(1 / o.divisor);
                          std::uint64_t at = 0;
                          for (detail::run const& s : sent_) {
                            for (std::uint64_t i = 0; i < s.count; ++i)
                              values_[at + i] = x[s.first + i] * share;
                            at += s.count;
                          }
                          caller_.sum(workers, schedule_, on, std::span(values_));
                          auto const timed = caller_.enter(phase::decode);
                          // float32 sums may round up to infinity
                          if (!detail::scale(on, values_, o.divisor / workers.size()))
                            return outcome::not_finite;
                          if (!left.empty()) {
                            detail::copy(on, caller_.blocks(), x.data(), left.data());
                            for (detail::run const& s : sent_)
                              std::fill_n(left.data() + s.first, s.count, 0.0F);
                          }
                          detail::fill(on, caller_.blocks(), mean.data(), 0.0F);
                          at = 0;
                          for (detail::run const& s : sent_) {
                            std::copy_n(values_.data() + at, s.count, mean.data() + s.first);
                            at += s.count;
                          }
                          return outcome::mean;
                        });
  }

 private:
  Schedule schedule_;
  detail::caller caller_;
  std::vector<detail::run> sent_;
  std::uint64_t total_ = 0;
  std::vector<float> values_;
};

}  // namespace GLOBALQ_ABI::baseline
