// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: IntSGD: values times a scale that all workers know, rounded to integers and added.

#include "../random/stream.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/round_up_or_down.hpp"
#include "state.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

namespace GLOBALQ_ABI::baseline {

/// Parameters of int_sgd; the same on every worker.
struct int_sgd_options {
  double beta = 0.9;      ///< of the moving average of squared steps
  double epsilon = 1e-8;  ///< keeps the scale finite if the model does not move
};

/// @brief Adds integers instead of floats, with a scale that follows from the distance that the model has moved.
///
/// alpha = sqrt(d) eta / sqrt(2 n r + eta^2 epsilon^2), with eta the learning rate of the step that the call is for and
/// r a moving average of ||x^k - x^(k-1)||^2; observe() sets both. If it is never called, r averages ||mean||^2 and eta
/// is 1: plain descent at a constant rate. Values become floor(alpha v) or one more, at random and without bias, and
/// are clipped so that the sum of all workers fits; clipping is biased, for values above 127/n or 2^31/n in units of
/// 1/alpha. The first call uses float32, as in the paper, and so does a call for which the scale is not finite.
/// @tparam Value      type that is sent: std::int8_t (at most 127 workers) or std::int32_t; sums never overflow
/// @tparam Schedule  any, schedule::native included: sums of integers have the same bits in any order
/// @complexity       bytes sent: those of the schedule for d integers
/// @determinism      bit-identical on all workers: the handshake distributes worker 0's scale
/// @source           Mishchenko et al. 2021, Algorithm 1 with the moving average of section 4 (adaptive scale),
///                   clipping for 8 bits
template <class Value = std::int8_t, class Schedule = schedule::scatter_reduce_allgather>
class int_sgd {
  static_assert(std::is_same_v<Value, std::int8_t> || std::is_same_v<Value, std::int32_t>,
                "globalq: int_sgd sends std::int8_t or std::int32_t");

 public:
  /// @throws configuration_error unless 0 <= beta < 1 and epsilon > 0, and for a layer that is not float32
  explicit int_sgd(adapt::model_layout layers, int_sgd_options const& how = {}, options const& settings = {},
                   Schedule schedule = {})
      : schedule_(std::move(schedule)),
        how_(how),
        caller_(sizeof(Value) == 1 ? "int_sgd<int8>" : "int_sgd<int32>", std::move(layers), settings,
                detail::hash_of(detail::hash_of(0, how.beta), how.epsilon),
                schedule::detail::text_of(schedule_), sizeof(Value)) {
    if (!(how.beta >= 0 && how.beta < 1 && how.epsilon > 0))
      throw configuration_error("globalq: int_sgd: beta is " + std::to_string(how.beta) + " and epsilon " +
                                std::to_string(how.epsilon) + "; use 0 <= beta < 1 and epsilon > 0");
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }

  /// @brief Sets the distance that the model has moved since the last call, and the learning rate of the next step.
  ///
  /// Call it after every step, or never: the first call discards the averages taken from means.
  /// @param squared  ||x^k - x^(k-1)||^2; worker 0's value is used
  /// @param rate     the learning rate of the next step; worker 0's value is used
  /// @throws         configuration_error unless squared >= 0 and rate is above 0 and finite, in float32
  void observe(double squared, double rate) {
    float_environment const exact;
    float const next = static_cast<float>(rate);
    if (!(squared >= 0 && next > 0 && is_finite(next)))
      throw configuration_error("globalq: int_sgd: observe() received a squared distance of " +
                                std::to_string(squared) + " and a learning rate of " + std::to_string(rate) +
                                "; use a distance of at least 0, and a finite rate above 0");
    if (!told_) average_ = none;
    told_ = true;
    rate_ = next;
    average(squared);
  }

  /// The scale of the next call with @p workers; 0: the call will use float32.
  double scale(int workers) const {
    if (average_ == none) return 0;
    double const rate = static_cast<double>(rate_), least = rate * how_.epsilon;
    double const a = std::sqrt(static_cast<double>(caller_.total())) * rate /
                     std::sqrt(2.0 * workers * static_cast<double>(average_) + least * least);
    return a > 1e-30 && a < 1e30 ? a : 0;
  }

  /// @brief See Compressor.
  /// @throws configuration_error on all workers if they are too many for Value: 128 or more with std::int8_t
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    auto const measure = [&] {
      return std::pair(detail::largest_bits(on, caller_.blocks(), x.data()), scale(workers.size()));
    };
    return caller_.call(workers, on, x, mean, rest, step, measure, [&](auto const& o, auto wanted) {
      if (most(workers.size()) < 1)
        throw configuration_error("globalq: int_sgd: " + std::to_string(workers.size()) +
                                  " workers share the int8 range 127; use int_sgd<std::int32_t>");
      double const alpha = o.records[0].statistic;
      float* const left = wanted.empty() ? nullptr : wanted.data();
      codes_.resize(caller_.total());  // also in the first call, so that later calls allocate nothing
      if (left != nullptr) own_.resize(caller_.total());
      outcome const result =
          alpha > 0 ? integers(workers, on, x.data(), mean.data(), left, step, alpha)
                    : caller_.float32_mean(workers, schedule_, on, x.data(), mean.data(), left, o.divisor);
      if (result == outcome::mean && !told_) average(squares(mean.data()));
      return result;
    });
  }

  void save(state& s) const {
    float const all[] = {average_, rate_, told_ ? 1.0F : 0.0F};
    s.put(key, all);
  }
  /// @throws frame_error if there is no such entry, or its numbers are invalid; nothing is changed then
  void load(state const& s) {
    auto const all = s.get(key, 3);
    if (!((all[0] >= 0 || all[0] == none) && all[1] > 0))
      throw frame_error("globalq: int_sgd: the state has the average " + std::to_string(all[0]) +
                        " and the learning rate " + std::to_string(all[1]) +
                        "; load a state that save() wrote");
    average_ = all[0];
    rate_ = all[1];
    told_ = all[2] != 0;
  }

 private:
  static constexpr char const* key = "int_sgd/average";
  static constexpr float none = -1;

  /// The largest integer of one worker.
  static double most(int workers) {
    return std::floor(static_cast<double>(std::numeric_limits<Value>::max()) / workers);
  }

  void average(double squared) {
    double const before = static_cast<double>(average_);
    float const next =
        static_cast<float>(average_ == none ? squared : how_.beta * before + (1 - how_.beta) * squared);
    average_ = is_finite(next) ? next : std::numeric_limits<float>::max();
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
    double const top = most(workers.size());
    random::stream const words{caller_.settings().seed, step, static_cast<std::uint32_t>(workers.rank()),
                               random::purpose::encode};
    caller_.each_block(on, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      detail::round_all(words, at, x + first, count, alpha, 0.0, -top, top, codes_.data() + at);
      if (rest != nullptr) std::copy_n(codes_.data() + at, count, own_.data() + at);
    });
    caller_.sum(workers, schedule_, on, std::span(codes_));
    auto const timed = caller_.enter(phase::decode);
    double const share = 1 / (alpha * workers.size());
    // sums might overflow float32
    if (static_cast<double>(std::numeric_limits<Value>::max()) * share >= 0x1p127) {
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
  float average_ = none, rate_ = 1;
  bool told_ = false;  ///< whether observe() was called
  std::vector<Value> codes_, own_;
};

}  // namespace GLOBALQ_ABI::baseline
