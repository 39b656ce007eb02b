// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: compresses where the model predicts that this is faster, and sends float32 elsewhere.

#include "../collective/allreduce_mean.hpp"
#include "../transport/root_decides.hpp"
#include "calibrate.hpp"

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief The decision for vectors of certain lengths, the same on all workers.
struct bypass_decision {
  std::uint64_t first = 0, last = 0;  ///< lengths to which it applies
  bool compress = false;
  double compressed_seconds = 0;  ///< predicted for the first of these lengths
  double plain_seconds = 0;
  std::string reason;  ///< as text
};

namespace detail {

/// The first worker with a fault, and the fault, 0 if there is none. The same on every worker.
template <Transport T>
std::pair<int, std::uint8_t> first_fault(T& workers, std::uint8_t mine) {
  auto const all = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(workers.size()));
  transport::keeping(workers, all, [&] { transport::allgather_value(workers, mine, std::span(*all)); });
  for (std::size_t r = 0; r < all->size(); ++r)
    if ((*all)[r] != 0) return {static_cast<int>(r), (*all)[r]};
  return {0, std::uint8_t{0}};
}

}  // namespace detail

/// @brief Settings of the bypass.
struct bypass_settings {
  /// Compression must be predicted to be this many times as fast; above 0; worker 0's value is used.
  double least_gain = 1;
  /// Longer vectors share the decision for this length; worker 0's value is used. Each power of two up to it is
  /// simulated twice.
  std::uint64_t longest = std::uint64_t{1} << 24;
};

/// @brief Decides for each length whether an operator is faster than float32; all workers agree, and a listener is
///        informed.
///
/// Worker 0 decides from its numbers at construction, once for the lengths from a power of two up to the next, and
/// broadcasts the decisions, so that all workers do the same. For calls of any kind; bypassing_mean is an
/// allreduce_mean with one:
/// @code
/// gq::model::bypass bypass{workers, gq::schedule::sra{}, links, costs_of_op, costs_of_float32, log};
/// bool const compress = bypass(model.length()).compress;      // calls log; the same on every worker
/// gq::adapt::layered_mean mean{workers, model, compress ? operators : all_float32, gq::schedule::sra{}};
/// @endcode
/// @complexity two simulations for each power of two up to `longest`, on worker 0, while the others wait: milliseconds
///             for few workers, seconds for hundreds (see simulate)
class bypass {
 public:
  using listener = std::function<void(bypass_decision const&)>;

  /// @param workers     this worker's endpoint; all workers construct one
  /// @param schedule    of the calls
  /// @param links       the result of calibrate(), or your own numbers; only those of worker 0 are used
  /// @param compressed  costs of the operator
  /// @param plain       costs of `uncompressed`
  /// @param tell        tell(bypass_decision): called on every worker when a decision is first used; must not throw
  /// @param chunk_values  as in the options of the calls
  /// @throws configuration_error, the same on every worker, if the operator does not fit, costs are unknown, @p plain
  ///         is not that of `uncompressed` or @p compressed is, @p tell is empty, or settings are out of range
  template <Transport T, Schedule S>
  bypass(T& workers, S const& schedule, calibration const& links, operator_model const& compressed,
         operator_model const& plain, listener tell, bypass_settings const& settings = {},
         std::uint64_t chunk_values = 0)
      : tell_(std::move(tell)) {
    check(workers, compressed, plain);
    auto const told = std::make_shared<transport::decision<verdict>>();
    verdict const v = transport::keeping(workers, told, [&] {
      return transport::root_decides(workers, *told, "model::bypass: a prediction", [&] {
        return judge(workers.size(), schedule, links, compressed, plain, settings, chunk_values);
      });
    });
    for (std::size_t k = 0; k < v.ranges; ++k) {
      bypass_decision d;
      d.first = k == 0 ? 0 : std::uint64_t{1} << k;
      d.last = k + 1 == v.ranges ? random::max_length : (std::uint64_t{2} << k) - 1;
      d.compressed_seconds = v.compressed[k];
      d.plain_seconds = v.plain[k];
      d.compress = v.compressed[k] * v.least_gain < v.plain[k];
      d.reason = "globalq: " + std::to_string(d.first) + " to " + std::to_string(d.last) +
                 " values: " + (d.compress ? compressed.name : plain.name) + ", since " + compressed.name +
                 " is predicted to take " + detail::time_text(v.compressed[k]) + " and " + plain.name + " " +
                 detail::time_text(v.plain[k]) + " for the shortest of them";
      decisions_.push_back(std::move(d));
    }
    told_.resize(decisions_.size());
  }

  /// The decision for a length; calls the listener if the decision is used for the first time.
  bypass_decision const& operator()(std::uint64_t length) {
    std::size_t const k = range_of(length);
    if (!told_[k]) {
      told_[k] = true;
      tell_(decisions_[k]);
    }
    return decisions_[k];
  }

  /// The decision for a length, without calling the listener.
  bypass_decision const& decision(std::uint64_t length) const { return decisions_[range_of(length)]; }
  /// All decisions, in order of lengths.
  std::span<bypass_decision const> decisions() const { return decisions_; }

 private:
  static constexpr std::size_t most_ranges = 41;

  struct verdict {
    double least_gain, compressed[most_ranges], plain[most_ranges];
    std::uint64_t ranges;
  };

  std::size_t range_of(std::uint64_t length) const {
    std::size_t const k = length == 0 ? 0 : static_cast<std::size_t>(std::bit_width(length)) - 1;
    return std::min(k, decisions_.size() - 1);
  }

  /// Exchanges the faults of every worker's arguments, so that all throw the same error.
  template <class T>
  void check(T& workers, operator_model const& compressed, operator_model const& plain) const {
    constexpr std::uint8_t deaf = 1, swapped = 2;
    std::uint8_t const mine =
        !tell_ ? deaf : (!compressed.facts.rounds() || plain.facts.rounds() ? swapped : 0);
    auto const [rank, fault] = detail::first_fault(workers, mine);
    std::string const who =
        "globalq: model::bypass: rank " + std::to_string(rank) + " of " + std::to_string(workers.size());
    if (fault == deaf)
      throw configuration_error(who +
                                ": no listener is registered; pass a callback on every worker, for example "
                                "one that logs");
    if (fault == swapped)
      throw configuration_error(
          who + ": costs are in the wrong order; pass those of the operator first, then of uncompressed{}");
  }

  template <class S>
  static verdict judge(int workers, S const& schedule, calibration const& links,
                       operator_model const& compressed, operator_model const& plain,
                       bypass_settings const& settings, std::uint64_t chunk_values) {
    verdict v{};
    if (!(settings.least_gain > 0) || !std::isfinite(settings.least_gain))
      throw configuration_error("globalq: model::bypass: least_gain is " +
                                std::to_string(settings.least_gain) + "; give a number above 0, such as 1");
    if (settings.longest == 0 || settings.longest >> most_ranges != 0)
      throw configuration_error("globalq: model::bypass: longest is " + std::to_string(settings.longest) +
                                "; give 1 to 2^41 - 1 values");
    if (links.net.workers() != workers)
      throw configuration_error("globalq: model::bypass: the links were measured with " +
                                std::to_string(links.net.workers()) + " workers, but there are " +
                                std::to_string(workers) + "; calibrate with these workers");
    call_shape shape = links.shape();
    shape.chunk_values = chunk_values;
    v.least_gain = settings.least_gain;
    v.ranges = static_cast<std::uint64_t>(std::bit_width(settings.longest));
    auto const seconds = [&](operator_model const& op, std::uint64_t length) {
      prediction const p = predict(links.net, op, schedule, length, shape);
      if (!p.fits()) throw configuration_error(p.plan.refusal);
      return p.time.seconds;
    };
    for (std::size_t k = 0; k < v.ranges; ++k) {
      v.compressed[k] = seconds(compressed, std::uint64_t{1} << k);
      v.plain[k] = seconds(plain, std::uint64_t{1} << k);
    }
    return v;
  }

  listener tell_;
  std::vector<bypass_decision> decisions_;
  std::vector<bool> told_;
};

/// @brief allreduce_mean of an operator, or of float32 for lengths at which the operator would be slower.
///
/// Every bypass is reported: `tell` receives each decision when it is first used, decisions() lists all, and telemetry
/// counts calls in float32 as `uncompressed`.
///
/// @code
/// auto const links = gq::model::calibrate(workers);
/// gq::model::bypassing_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}, links,
///                                gq::model::calibrate_operator(workers, "int8", op),
///                                gq::model::calibrate_operator(workers, "float32", gq::uncompressed{}),
///                                [](auto const& decision) { std::clog << decision.reason << '\n'; }};
/// mean(gradient, step);
/// @endcode
/// @determinism as allreduce_mean; the choice between the two depends on measurements, and may differ from run to run
template <class Transport, class Schedule>
class bypassing_mean {
 public:
  /// Parameters as for bypass; @p compressed are the costs of @p op.
  /// @throws configuration_error, the same on every worker, as bypass does, and if @p compressed are the costs of
  ///         another operator
  template <class Operator>
  bypassing_mean(Transport& workers, Operator const& op, Schedule schedule, options const& settings,
                 calibration const& links, operator_model const& compressed, operator_model const& plain,
                 bypass::listener tell, bypass_settings const& when = {})
      : bypass_(workers, schedule, links, compressed, plain, std::move(tell), when, settings.chunk_values),
        compressed_(workers, op, schedule, settings),
        plain_(workers, uncompressed{}, schedule, settings) {
    std::string const name = globalq::detail::facts_of(op).name;
    std::uint8_t const differs = name != compressed.facts.name ? 1 : 0;
    auto const [rank, fault] = detail::first_fault(workers, differs);
    if (fault != 0)
      throw configuration_error("globalq: model::bypassing_mean: rank " + std::to_string(rank) + " of " +
                                std::to_string(workers.size()) +
                                ": costs and operator differ, on this worker " + compressed.facts.name +
                                " and " + name + "; calibrate the operator that is called");
  }

  /// As allreduce_mean: (vector, step) in place, (input, output, step), or (vector_group, step); the lengths of a group
  /// are added.
  template <class V, class... More>
  void operator()(V&& x, More&&... more) {
    if (bypass_(length_of(x)).compress)
      compressed_(std::forward<V>(x), std::forward<More>(more)...);
    else
      plain_(std::forward<V>(x), std::forward<More>(more)...);
  }
  /// As allreduce_mean::start, on one queue for both.
  template <class V, class... More>
  started_call start(V&& x, More&&... more) {
    if (!queue_) run_on(std::make_shared<call_queue>());
    if (bypass_(length_of(x)).compress)
      return compressed_.start(std::forward<V>(x), std::forward<More>(more)...);
    return plain_.start(std::forward<V>(x), std::forward<More>(more)...);
  }
  /// Waits until all started calls have ended; as allreduce_mean::wait.
  void wait() { compressed_.wait(); }
  /// As allreduce_mean::run_on.
  void run_on(std::shared_ptr<call_queue> queue) {
    compressed_.run_on(queue);
    plain_.run_on(queue);
    queue_ = std::move(queue);
  }

  /// The mean of the operator, for example to change its levels.
  allreduce_mean<transport::place_of<Transport>>& compressed() { return compressed_; }

  /// The decision for a length.
  bypass_decision const& decision(std::uint64_t length) const { return bypass_.decision(length); }
  /// All decisions, in order of lengths.
  std::span<bypass_decision const> decisions() const { return bypass_.decisions(); }
  /// The plan of a call.
  globalq::plan plan(std::uint64_t length) const {
    return decision(length).compress ? compressed_.plan(length) : plain_.plan(length);
  }

 private:
  template <class V>
  static std::uint64_t length_of(V const& x) {
    if constexpr (std::is_same_v<V, vector_group>) {
      std::uint64_t sum = 0;
      for (vector_group::member const& m : x.members()) sum += m.length;
      return sum;
    } else {
      return globalq::detail::size_of_vector(x);
    }
  }

  bypass bypass_;
  allreduce_mean<transport::place_of<Transport>> compressed_, plain_;
  std::shared_ptr<call_queue> queue_;
};

}  // namespace GLOBALQ_ABI::model
