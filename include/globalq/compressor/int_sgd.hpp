// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: IntSGD: values times a scale that all workers know already, rounded to integers and added.

#include "../random/stream.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/round_up_or_down.hpp"
#include "state.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

namespace globalq::compressor {

/// Parameters of int_sgd; the same on every worker.
struct int_sgd_options {
  double beta = 0.9;      ///< of the moving average of squared steps
  double epsilon = 1e-8;  ///< keeps the scale finite where nothing moves
};

/// @brief Adds integers instead of floats, with a scale that follows from how far the model has moved.
///
/// alpha = sqrt(d) / sqrt(2 n r + epsilon^2), r a moving average of ||x^k - x^(k-1)||^2 / eta^2, which is that of
/// ||mean||^2 for plain descent (the default) and what observe() is told for other methods. Values become
/// floor(alpha v) or one more, at random and without bias, cut off so that the sum of all workers fits: which is what is biased, where
/// a value is above 127/n or 2^31/n in units of 1/alpha. The first call is made in float32, as the paper's, and so
/// is a call for which the scale is no number.
/// @tparam Lane      std::int8_t or std::int32_t: what travels; sums never wrap
/// @tparam Schedule  any, schedule::native included: sums of integers have the same bits in any order
/// @complexity       bytes sent: those of the schedule for d integers
/// @determinism      bit-identical on all workers: the scale is worker 0's, told in the opening exchange
/// @source           Mishchenko et al. 2021, Algorithm 1 and section 4 (adaptive scale; clipping for 8 bits)
template <class Lane = std::int8_t, class Schedule = schedule::scatter_reduce_allgather>
class int_sgd {
  static_assert(std::is_same_v<Lane, std::int8_t> || std::is_same_v<Lane, std::int32_t>,
                "globalq: int_sgd sends std::int8_t or std::int32_t");

 public:
  /// @throws configuration_error unless 0 <= beta < 1 and epsilon > 0, and for a layer that is not float32
  explicit int_sgd(adapt::layout layers, int_sgd_options const& how = {}, options const& settings = {},
                   Schedule schedule = {})
      : schedule_(std::move(schedule)),
        how_(how),
        caller_(sizeof(Lane) == 1 ? "int_sgd<int8>" : "int_sgd<int32>", std::move(layers), settings,
                detail::hash_of(detail::hash_of(0, how.beta), how.epsilon),
                schedule::detail::text_of(schedule_)) {
    if (!(how.beta >= 0 && how.beta < 1 && how.epsilon > 0))
      throw configuration_error("globalq: int_sgd: beta is " + std::to_string(how.beta) + " and epsilon " +
                                std::to_string(how.epsilon) + "; use 0 <= beta < 1 and epsilon > 0");
  }

  adapt::layout const& layers() const { return caller_.layers(); }

  /// @brief Tells how far the model has moved since the last call, instead of the norm of the last mean.
  /// @param squared  ||x^k - x^(k-1)||^2 / eta^2 with the learning rate eta; worker 0's counts
  void observe(double squared) {
    average(squared);
    told_ = true;
  }

  /// The scale of the next call with @p workers; 0: it will be made in float32.
  double scale(int workers) const {
    if (!has_average_) return 0;
    double const a = std::sqrt(static_cast<double>(caller_.total())) /
                     std::sqrt(2.0 * workers * static_cast<double>(average_) + how_.epsilon * how_.epsilon);
    return a > 1e-30 && a < 1e30 ? a : 0;
  }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = detail::executor_of(workers);
    auto const measure = [&] {
      return std::pair(detail::largest_bits(on, caller_.blocks(), x.data()), scale(workers.size()));
    };
    return caller_.call(workers, on, x, mean, rest, step, measure, [&](auto const& o, auto wanted) {
      double const alpha = o.records[0].statistic;
      float* const left = wanted.empty() ? nullptr : wanted.data();
      outcome const result =
          alpha > 0 ? integers(workers, on, x.data(), mean.data(), left, step, alpha)
                    : caller_.float32_mean(workers, schedule_, on, x.data(), mean.data(), left, o.unit);
      if (result == outcome::mean) {
        if (!told_) average(squares(mean.data()));
        told_ = false;
      }
      return result;
    });
  }

  void save(state& s) const { s.put("int_sgd/average", std::span(&average_, has_average_ ? 1 : 0)); }
  /// @throws frame_error when there is no such entry
  void load(state const& s) {
    try {
      average_ = s.get("int_sgd/average", 1)[0];
      has_average_ = true;
    } catch (frame_error const&) {
      static_cast<void>(s.get("int_sgd/average", 0));
      has_average_ = false;
    }
    told_ = false;
  }

 private:
  void average(double squared) {
    double const before = static_cast<double>(average_);
    float const next =
        static_cast<float>(has_average_ ? how_.beta * before + (1 - how_.beta) * squared : squared);
    average_ = is_finite(next) ? next : std::numeric_limits<float>::max();
    has_average_ = true;
  }

  double squares(float const* y) const {
    double sum = 0;
    for (detail::run const& b : caller_.blocks()) {
      double here = 0;
      for (std::uint64_t i = b.first; i < b.first + b.count; ++i)
        here += static_cast<double>(y[i]) * static_cast<double>(y[i]);
      sum += here;
    }
    return sum;
  }

  template <Transport T>
  outcome integers(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                   std::uint64_t step, double alpha) {
    double const most = std::floor(static_cast<double>(std::numeric_limits<Lane>::max()) / workers.size());
    random::stream const words{caller_.settings().seed, step, static_cast<std::uint32_t>(workers.rank()),
                               random::purpose::encode};
    codes_.resize(caller_.total());
    if (rest != nullptr) own_.resize(caller_.total());
    caller_.each_block(on, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      detail::round_all(words, at, x + first, count, alpha, 0.0, -most, most, codes_.data() + at);
      if (rest != nullptr) std::copy_n(codes_.data() + at, count, own_.data() + at);
    });
    caller_.sum(workers, schedule_, on, std::span(codes_));
    auto const timed = caller_.enter(phase::decode);
    double const share = 1 / (alpha * workers.size());
    if (static_cast<double>(std::numeric_limits<Lane>::max()) * share >=
        0x1p127) {  // sums might leave float32
      std::atomic<bool> finite{true};
      caller_.each_block(on, [&](std::uint64_t, std::uint64_t at, std::uint64_t count) {
        for (std::uint64_t i = at; i < at + count; ++i)
          if (!is_finite(static_cast<float>(static_cast<double>(codes_[i]) * share))) finite = false;
      });
      if (!finite) return outcome::not_finite;
    }
    caller_.each_block(on, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      if (rest != nullptr)
        for (std::uint64_t i = 0; i < count; ++i)
          rest[first + i] = x[first + i] - static_cast<float>(static_cast<double>(own_[at + i]) / alpha);
      for (std::uint64_t i = 0; i < count; ++i)
        mean[first + i] = static_cast<float>(static_cast<double>(codes_[at + i]) * share);
    });
    return outcome::mean;
  }

  Schedule schedule_;
  int_sgd_options how_;
  detail::caller caller_;
  float average_ = 0;
  bool has_average_ = false, told_ = false;
  std::vector<Lane> codes_, own_;
};

}  // namespace globalq::compressor
