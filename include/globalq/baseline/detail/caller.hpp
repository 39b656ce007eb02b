// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the common start and end of every call: handshake, checks of values, reused memory.

#include "../../call/detail/float32_forced.hpp"
#include "../../call/detail/opening.hpp"
#include "../../schedule/scatter_reduce_allgather.hpp"
#include "../../telemetry/detail/call_meter.hpp"
#include "../../telemetry/detail/metered_codec.hpp"
#include "../../telemetry/detail/value_errors.hpp"
#include "../../transport/collectives.hpp"
#include "../concept.hpp"
#include "blocks.hpp"
#include "chosen.hpp"
#include "sums_codec.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace GLOBALQ_ABI::baseline::detail {

/// All memory that a transfer may still touch after a call has failed.
struct workspace {
  frame_pool frames;
  std::vector<globalq::detail::opening_record> records;
  byte_buffer mine, all;
};

/// @brief A separate workspace for each copy of a compressor, because copies may be called at the same time.
class own_workspace {
 public:
  own_workspace() = default;
  own_workspace(own_workspace const&) : own_workspace() {}
  own_workspace& operator=(own_workspace const&) { return *this; }
  own_workspace(own_workspace&&) = default;
  own_workspace& operator=(own_workspace&&) = default;
  ~own_workspace() = default;

  workspace& operator*() const { return *memory_; }
  workspace* operator->() const { return memory_.get(); }
  /// Runs f(), whose transfers use the workspace.
  template <Transport T, class F>
  auto keeping(T& workers, F const& f) {
    return transport::keeping_reused(workers, memory_, f);
  }

 private:
  std::shared_ptr<workspace> memory_ = std::make_shared<workspace>();
};

/// For compressors that send bits in words, whose messages do not depend on chunk_values.
inline options without_chunks(options settings) {
  settings.chunk_values = 0;
  return settings;
}

/// Adds a real number to a fingerprint.
inline std::uint64_t hash_of(std::uint64_t h, double x) { return globalq::detail::hash(h, bits_of(x)); }

/// The largest number of values of a compressor, 4 TiB of float32: objects keep a few bytes for each block of values.
inline constexpr std::uint64_t most_values = std::uint64_t{1} << 40;

/// @throws configuration_error if the layers have more values, before anything is allocated for them
inline adapt::model_layout within_limit(char const* name, adapt::model_layout layers,
                                        std::uint64_t most = most_values) {
  if (layers.length() > most)
    throw configuration_error("globalq: " + std::string(name) + ": the layers have " +
                              std::to_string(layers.length()) + " values, and the limit is " +
                              std::to_string(most) +
                              "; correct the shapes, or use one compressor for each part of the model");
  return layers;
}

/// @brief The layers of a compressor, and its calls.
class caller {
 public:
  /// @param name        of the compressor, for errors and the fingerprint
  /// @param parameters  hash of all its parameters
  /// @param schedule    name of the schedule of its sums
  /// @param summed      bytes of a value of these sums; 0: messages are not divided into chunks
  /// @throws configuration_error for a layer that is not float32, and more than most_values
  caller(char const* name, adapt::model_layout layers, options const& settings, std::uint64_t parameters,
         std::string_view schedule = {}, std::size_t summed = 0)
      : layers_(within_limit(name, std::move(layers))),
        settings_(settings),
        name_(name),
        schedule_(schedule),
        summed_(forced_ ? sizeof(float) : summed),
        runs_(runs_of(layers_)),
        blocks_(blocks_of(runs_)),
        meter_(settings.telemetry) {
    for (run const& b : blocks_) {
      before_.push_back(total_);
      total_ += b.count;
    }
    set_parameters(parameters);
    for (adapt::layer const& l : layers_) {
      if (l.type != dtype::float32)
        throw configuration_error("globalq: " + std::string(name) + ": layer \"" + l.name + "\" is of type " +
                                  name_of(l.type) + "; compressors take float32: convert it before the call");
      places_ = globalq::detail::hash(places_, l.name);
      for (std::uint64_t const number : {l.offset, l.size, l.rows()})
        places_ = globalq::detail::hash(places_, number);
    }
  }

  /// For compressors whose parameters change between calls.
  void set_parameters(std::uint64_t parameters) {
    parameters_ = forced_ ? globalq::detail::hash(0, std::string_view("float32"))
                          : globalq::detail::hash(parameters, std::string_view(name_));
  }

  adapt::model_layout const& layers() const { return layers_; }
  options const& settings() const { return settings_; }
  char const* name() const { return name_; }
  std::span<run const> runs() const { return runs_; }
  std::span<run const> blocks() const { return blocks_; }
  /// The number of values of all layers, without values between them.
  std::uint64_t total() const { return total_; }
  workspace& memory() const { return *memory_; }
  /// The executor of a call's kernels.
  template <Transport T>
  kernel::host_executor executor_of(T& workers) {
    return executor_.of(workers);
  }

  /// The result of the handshake.
  struct opened {
    bool finite = true;
    double top = 0;      ///< max|x| over all workers
    double divisor = 1;  ///< a power of two by which values are divided, so that float32 sums do not overflow
    std::span<globalq::detail::opening_record const> records;  ///< of all workers, each with its statistic
  };

  /// The measurement of most calls: the largest magnitude only.
  auto largest(kernel::host_executor const& on, std::span<float const> x) const {
    return [this, &on, x] { return std::pair(largest_bits(on, blocks_, x.data()), 0.0); };
  }

  /// @brief One call: the handshake, then @p body(opened, rest) -> outcome, then the handling of non-finite means.
  ///
  /// The body begins in the phase of encoding and declares other phases (enter); it sends by exchange(), sum() or
  /// allgather(). Its argument rest is the caller's, or memory in which telemetry measures errors.
  /// @param measure  measure() -> (bits of this worker's largest magnitude, a number that all workers receive)
  template <Transport T, class Measure, class Body>
  outcome call(T& workers, kernel::host_executor const& on, std::span<float const> x, std::span<float> mean,
               std::span<float> rest, std::uint64_t step, Measure const& measure, Body const& body) {
    float_environment const exact;
    auto const watched = meter_.watch(workers, name_, step, x.size(), forced_);
    return checked(workers, on, x, mean, rest, step, measure, body);
  }

  /// Enters a phase, until the result goes out of scope.
  [[nodiscard]] auto enter(phase p) { return meter_.enter(p); }

  /// @brief Exchanges frames of a codec with all workers, timed.
  template <Transport T, class Schedule>
  void exchange(T& workers, Schedule const& schedule, codec& frames_of, globalq::partition const& cut) {
    globalq::detail::run_metered(meter_, schedule, workers, frames_of, cut, memory_->frames);
  }
  /// @brief Replaces every worker's numbers by their sum over all workers; the same bits everywhere.
  template <class Value, Transport T, class Schedule>
  void sum(T& workers, Schedule const& schedule, kernel::host_executor const& on, std::span<Value> values) {
    if (values.empty() || workers.size() == 1) return;
    sums_codec<Value> numbers(on, values);
    exchange(workers, schedule, numbers,
             globalq::partition(values.size(), schedule.parts(workers.size()), random::tile_values,
                                chunk_values(workers, sizeof(Value))));
  }
  /// The number of values in a message of sums.
  /// @param bytes  of a value
  template <Transport T>
  std::uint64_t chunk_values(T const& workers, std::size_t bytes) const {
    return settings_.chunk_values != 0 ? settings_.chunk_values
                                       : std::max<std::size_t>(transport::chunk_bytes_of(workers) / bytes, 1);
  }
  /// @brief Collects every worker's numbers, in order of ranks.
  template <class Number, Transport T>
  void allgather(T& workers, std::span<Number const> mine, std::span<Number> all) {
    auto const timed = meter_.enter(phase::transfer);
    transport::allgather(workers, std::as_bytes(mine), std::as_writable_bytes(all));
  }

  /// f(place in the vector, place among the values of layers, count) for blocks.
  template <class F>
  void each_block(kernel::host_executor const& on, F const& f) const {
    on.items(blocks_.size(), [&](std::uint64_t b) { f(blocks_[b].first, before_[b], blocks_[b].count); });
  }

  /// @brief Computes the mean in float32; the residual is zero.
  /// @param divisor  from the handshake
  template <Transport T, class Schedule>
  outcome float32_mean(T& workers, Schedule const& schedule, kernel::host_executor const& on, float const* x,
                       float* mean, float* rest, double divisor) {
    meter_.report().uncompressed = 1;
    sums_.resize(total_);
    float const share = static_cast<float>(1 / divisor);
    each_block(on, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) sums_[at + i] = x[first + i] * share;
    });
    sum(workers, schedule, on, std::span(sums_));
    auto const timed = meter_.enter(phase::decode);
    if (!scale(on, sums_, divisor / workers.size())) return outcome::not_finite;
    if (rest != nullptr) fill(on, blocks_, rest, 0.0F);
    each_block(on, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      std::copy_n(sums_.data() + at, count, mean + first);
    });
    return outcome::mean;
  }

 private:
  /// The call, inside telemetry.
  template <Transport T, class Measure, class Body>
  outcome checked(T& workers, kernel::host_executor const& on, std::span<float const> x,
                  std::span<float> mean, std::span<float> rest, std::uint64_t step, Measure const& measure,
                  Body const& body) {
    return memory_.keeping(workers, [&] {
      std::string why;
      if (step > random::max_step)
        why = "step " + std::to_string(step) + " is 2^48 or more; count steps from 0";
      if (x.size() != layers_.length() || mean.size() != x.size() ||
          (!rest.empty() && rest.size() != x.size()))
        why = "the vectors have " + std::to_string(x.size()) + " (x), " + std::to_string(mean.size()) +
              " (mean) and " + std::to_string(rest.size()) + " (rest) values, the layers " +
              std::to_string(layers_.length()) + "; pass vectors that hold all layers";
      if (!why.empty()) {
        globalq::detail::share_refusal(workers, why);
        throw configuration_error(
            globalq::detail::worker_message(name_, workers.rank(), workers.size(), why));
      }
      auto const [top, statistic] = measured(measure);
      opened const o = open(workers, x.size(), step, top, statistic);
      outcome result = outcome::not_finite;
      if (o.finite && forced_) {  // the state does not change
        auto const timed = meter_.enter(phase::encode);
        result = float32_mean(workers, schedule::scatter_reduce_allgather{}, on, x.data(), mean.data(),
                              rest.empty() ? nullptr : rest.data(), o.divisor);
      } else if (o.finite) {
        result = measured_errors(on, x, rest, [&](std::span<float> left) {
          auto const timed = meter_.enter(phase::encode);
          return body(o, left);
        });
      }
      if (result == outcome::not_finite) {
        meter_.not_finite(o.finite ? -1 : who_brought(o));
        if (settings_.non_finite == non_finite::error)
          throw non_finite_error(
              globalq::detail::non_finite_text(name_,
                                               o.finite ? globalq::detail::beyond_range_text(dtype::float32)
                                                        : globalq::detail::brought_text(who_brought(o)),
                                               false));
        fill(on, blocks_, mean.data(), float_of(float_nan));
      }
      return result;
    });
  }

  template <class Measure>
  auto measured(Measure const& measure) {
    auto const timed = meter_.enter(phase::norm);
    std::pair<std::uint32_t, double> const m = measure();
    return m;
  }

  /// Runs body(rest); if telemetry requests errors, it measures those of this worker's message.
  template <class Body>
  outcome measured_errors(kernel::host_executor const& on, std::span<float const> x, std::span<float> rest,
                          Body const& body) {
    if (!meter_.wants_errors()) return body(rest);
    before_call_.assign(x.begin(), x.end());  // rest may be the memory of x
    message_.resize(x.size());                // before the state changes
    left_.resize(rest.empty() ? x.size() : 0);
    if (rest.empty()) rest = left_;
    outcome const result = body(rest);
    if (result != outcome::mean) return result;
    for (run const& r : runs_) {
      for (std::uint64_t i = r.first; i < r.first + r.count; ++i) message_[i] = before_call_[i] - rest[i];
      globalq::detail::add_errors(on, {before_call_.data() + r.first, dtype::float32},
                                  {message_.data() + r.first, dtype::float32}, r.count, meter_.report());
    }
    return result;
  }

  template <Transport T>
  opened open(T& workers, std::uint64_t length, std::uint64_t step, std::uint32_t top, double statistic) {
    int const n = workers.size();
    using globalq::detail::agreement;
    globalq::detail::chunk_sizes const sizes{summed_ == 0 ? 0 : chunk_values(workers, summed_)};
    agreement agreed(dtype::float32, parameters_, globalq::detail::hash(0, schedule_), n, sizes,
                     settings_.seed, settings_.non_finite, length);
    if (summed_ == 1)  // the first call of int_sgd adds float32 values
      agreed.fields[agreement::chunk] =
          globalq::detail::hash(agreed.fields[agreement::chunk], chunk_values(workers, sizeof(float)));
    agreed.fields[agreement::type] = globalq::detail::hash(agreed.fields[agreement::type], places_);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    auto const mine = std::span(records).subspan(static_cast<std::size_t>(workers.rank()), 1);
    mine[0] = agreed.record(step, bits_of(static_cast<double>(float_of(top))), statistic);
    auto const timed = meter_.enter(phase::opening);
    transport::allgather(workers, std::as_bytes(mine), std::as_writable_bytes(std::span(records)));
    globalq::detail::check_agreement(workers, records, name_, forced_, [&](int field) -> std::string {
      if (field == agreement::type) return std::to_string(layers_.size()) + " layers of float32";
      if (field == agreement::what) return forced_ ? "float32" : name_;
      if (field == agreement::schedule) return schedule_.empty() ? "allgather" : schedule_;
      if (field == agreement::chunk) return sizes.text();
      if (field == agreement::settings) return {};
      if (field == agreement::seed) return std::to_string(settings_.seed);
      if (field == agreement::step) return std::to_string(step);
      return globalq::detail::mode_text(settings_.non_finite);
    });
    opened o;
    o.records = records;
    for (auto const& r : records) {
      o.finite = o.finite && !r.non_finite();
      o.top = std::max(o.top, r.max());
    }
    if (o.finite && o.top > 0) o.divisor = globalq::detail::float_scale_of(o.top, n, dtype::float32).divisor;
    return o;
  }

  static int who_brought(opened const& o) {
    int who = 0;
    while (!o.records[static_cast<std::size_t>(who)].non_finite()) ++who;
    return who;
  }

  adapt::model_layout layers_;
  options settings_;
  char const* name_;
  std::string schedule_;
  bool forced_ = globalq::detail::float32_forced();
  std::size_t summed_;
  std::uint64_t parameters_ = 0, places_ = 0;
  std::vector<run> runs_, blocks_;
  std::vector<std::uint64_t> before_;  ///< values of layers before each block
  std::uint64_t total_ = 0;
  std::vector<float> sums_;
  std::vector<float> before_call_, left_, message_;  ///< for telemetry: x, the residual, the values sent
  own_workspace memory_;
  worker_executor executor_;
  globalq::detail::call_meter meter_;
};

}  // namespace GLOBALQ_ABI::baseline::detail
