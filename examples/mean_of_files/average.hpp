// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: one worker's part of a run, the same for every transport.

#include "failure.hpp"
#include "files.hpp"
#include "options.hpp"
#include "report.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/clip.hpp>

#include <globalq/named/level_learning.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace mean_of_files {

/// @brief A 128-bit digest of a vector's bytes: those of two different vectors are equal with a probability of about
/// 2^-128.
struct digest {
  std::uint64_t low = 0x243F6A8885A308D3ULL;
  std::uint64_t high = 0x13198A2E03707344ULL;
  bool operator==(digest const&) const = default;
};

/// Multiplies and mixes eight bytes at a time, in two independent ways.
inline digest digest_of(std::span<std::byte const> bytes) {
  digest d;
  auto const add = [&](std::uint64_t word) {
    d.low = (d.low ^ word) * 0x9E3779B97F4A7C15ULL;
    d.low ^= d.low >> 29;
    d.high = (d.high + word) * 0xD1B54A32D192ED03ULL;
    d.high = (d.high << 31 | d.high >> 33) ^ d.high >> 7;
  };
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    add(word);
  }
  std::uint64_t rest = 0;
  if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
  add(rest);
  add(bytes.size());
  return d;
}

/// @brief The outcome of a call on one worker.
struct call_record {
  double seconds = 0;
  std::uint64_t bytes_sent = 0;
  digest result;
  bool brought = false;  ///< NaN or infinity
};

/// @brief One worker's run. All workers call each member together.
template <globalq::Transport T>
class worker {
 public:
  worker(T& workers, settings const& chosen) : workers_{workers}, chosen_{chosen} {}

  /// @brief Reads, averages and writes; when it returns, every worker has written its file.
  /// @param file  of this worker; yet to be published
  /// @throws agreed_failure, or what the library throws
  report run(output_file& file) {
    outcome mine = attempt([&] {
      prepare();
      input_ = read_values(path_of(chosen_.input, workers_.rank()));
      sums_.assign(input_.size(), 0.0);
    });
    mine.must_agree = chosen_.repeat;
    agree(workers_, mine);
    switch (chosen_.dtype) {
      case globalq::dtype::float64:
        average<double>();
        break;
      case globalq::dtype::float16:
        average<globalq::float16>();
        break;
      case globalq::dtype::bfloat16:
        average<globalq::bfloat16>();
        break;
      default:
        average<float>();
        break;
    }
    measure_error();
    agree(workers_, attempt([&] { file.write(output_); }));
    return report_;
  }

 private:
  using mean_type = globalq::allreduce_mean<>;

  /// Refuses invalid combinations.
  void prepare() {
    globalq::any_quantizer const op = globalq::named::make(chosen_.words);
    globalq::schedule::any const schedule{std::string_view{chosen_.schedule}};
#ifdef KOKKOS_ENABLE_OPENMP
    if (chosen_.execution == execution_kind::openmp) {
      // a separate instance: workers that share one would wait for each other
      return emplace(op, schedule, Kokkos::OpenMP{Kokkos::OpenMP{}.concurrency()});
    }
#endif
    emplace(op, schedule, Kokkos::Serial{Kokkos::NewInstance{}});
  }

  template <class Space>
  void emplace(globalq::any_quantizer const& op, globalq::schedule::any const& schedule, Space const& space) {
    mean_.emplace(workers_, op, schedule, chosen_.call, space);
  }

  globalq::plan plan(std::uint64_t length) const { return mean_->plan(length, chosen_.dtype); }

  template <class Value>
  void average() {
    std::vector<Value> values(input_.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Value>(input_[i]);
    if (chosen_.clip > 0)
      globalq::clip_deviations(values, chosen_.clip, chosen_.words.bucket, Kokkos::Serial{});
    learn_levels(values);
    std::vector<Value> result(values.size());
    globalq::plan const plan = this->plan(values.size());
    report_.workers = workers_.size();
    report_.length = values.size();
    report_.bits_per_value = plan.bits_per_value;
    report_.bytes_sent = plan.bytes_sent;
    report_.bytes_modeled = plan.bytes_modeled;
    if (!std::isnan(plan.theta) && chosen_.clip == 0 && !chosen_.words.centered)
      report_.theta_bound = plan.theta;

    bool const brought = !all_finite(values);
    std::uint64_t most_bytes = 0;
    std::vector<double> seconds;
    for (std::uint64_t k = 0; k < chosen_.repeat; ++k) {
      auto const [slowest, bytes] = call(values, result, chosen_.step + k, brought);
      seconds.push_back(slowest);
      most_bytes = std::max(most_bytes, bytes);
      for (std::size_t i = 0; i < result.size(); ++i)
        sums_[i] += static_cast<double>(static_cast<widest<Value>>(result[i]));
    }
    if (seconds.size() > 1) seconds.erase(seconds.begin());
    report_.seconds = median(seconds);
    // less than planned if there was nothing to send: all values zero, or the result all NaN
    if (!report_.bytes_modeled) report_.bytes_sent = most_bytes;
    check_plan(plan, result);
    output_.resize(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i)
      output_[i] = static_cast<float>(sums_[i] / static_cast<double>(chosen_.repeat));
    keep_in_range();
    report_.non_finite = !all_finite(output_);
  }

  /// Learns levels from the inputs, if the operator learns: a single mean has no earlier step.
  template <class Value>
  void learn_levels(std::vector<Value> const& values) {
    if (!chosen_.learns) return;
    globalq::named::level_learning learning{
        chosen_.words, chosen_.learns, {.once = {chosen_.step}, .every = 0}};
    learning.update(workers_, std::span<Value const>{values}, chosen_.step, *mean_);
    report_.levels = learning.levels();
  }

  /// A float64 result may exceed float32's range: the files follow the library's rule for that.
  void keep_in_range() {
    bool const beyond =
        std::any_of(output_.begin(), output_.end(), [](float value) { return std::isinf(value); });
    outcome mine;
    if (beyond && chosen_.call.non_finite == globalq::non_finite::error)
      mine = {failed,
              "a value of the mean is beyond the range of float32; use smaller inputs, or --non-finite "
              "propagate"};
    agree(workers_, mine);
    if (beyond) std::fill(output_.begin(), output_.end(), std::numeric_limits<float>::quiet_NaN());
  }

  /// One call; returns its seconds and bytes, the maximum over all workers.
  template <class Value>
  std::pair<double, std::uint64_t> call(std::vector<Value> const& values, std::vector<Value>& result,
                                        std::uint64_t step, bool brought) {
    if (chosen_.in_place) result = values;
    globalq::transport::barrier(workers_);
    std::uint64_t const bytes_before = workers_.bytes_sent();
    auto const start = std::chrono::steady_clock::now();
    auto const average = [&](auto& mean) {
      if (chosen_.in_place)
        mean(result, step);
      else
        mean(values, result, step);
    };
    average(*mean_);
    std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - start;
    call_record const mine{elapsed.count(), workers_.bytes_sent() - bytes_before,
                           digest_of(std::as_bytes(std::span{result})), brought};
    std::vector<call_record> all(static_cast<std::size_t>(workers_.size()));
    globalq::transport::allgather_value(workers_, mine, std::span{all});
    call_record most;
    for (std::size_t r = all.size(); r-- > 0;)
      if (all[r].brought) report_.non_finite_rank = static_cast<int>(r);
    for (call_record const& each : all) {
      report_.identical = report_.identical && each.result == all[0].result;
      most.seconds = std::max(most.seconds, each.seconds);
      most.bytes_sent = std::max(most.bytes_sent, each.bytes_sent);
    }
    return {most.seconds, most.bytes_sent};
  }

  /// In builds with assertions: compares the bytes sent with the plan.
  template <class Value>
  void check_plan(globalq::plan const& plan, std::vector<Value> const& result) const {
#ifndef NDEBUG
    bool const sent_frames = std::any_of(result.begin(), result.end(), [](Value each) {
      auto const value = static_cast<widest<Value>>(each);
      return std::isfinite(value) && value != 0;
    });
    // for codes of variable length the plan is an upper bound
    bool const as_planned =
        plan.bytes_are_most ? report_.bytes_sent <= plan.bytes_sent : report_.bytes_sent == plan.bytes_sent;
    if (sent_frames && !plan.bytes_modeled && !as_planned)
      throw std::logic_error{"the plan says " + std::to_string(plan.bytes_sent) + " bytes, and " +
                             std::to_string(report_.bytes_sent) + " were sent"};
#else
    static_cast<void>(plan);
    static_cast<void>(result);
#endif
  }

  static double median(std::vector<double> numbers) {
    std::sort(numbers.begin(), numbers.end());
    std::size_t const half = numbers.size() / 2;
    return numbers.size() % 2 != 0 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
  }

  /// The error against the mean of the files, added in double in rank order, a part of the vectors at a time.
  void measure_error() {
    constexpr std::size_t part = std::size_t{1} << 16;
    auto const n = static_cast<std::size_t>(workers_.size());
    std::vector<float> all(n * std::min(part, input_.size()));
    double error = 0, power = 0;
    for (std::size_t at = 0; at < input_.size(); at += part) {
      std::size_t const count = std::min(part, input_.size() - at);
      auto const here = std::span{all}.first(n * count);
      globalq::transport::allgather(workers_, std::as_bytes(std::span{input_}.subspan(at, count)),
                                    std::as_writable_bytes(here));
      if (workers_.rank() != 0) continue;
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (std::size_t r = 0; r < n; ++r) {
          double const x = static_cast<double>(here[r * count + i]);
          sum += x;
          power += x * x;
        }
        double const off = static_cast<double>(output_[at + i]) - sum / static_cast<double>(n);
        error += off * off;
      }
    }
    double const nmse = error / (power / static_cast<double>(n));
    if (power > 0 && std::isfinite(nmse)) report_.nmse = nmse;
  }

  template <class Value>
  static bool all_finite(std::vector<Value> const& values) {
    return std::all_of(values.begin(), values.end(),
                       [](Value each) { return std::isfinite(static_cast<widest<Value>>(each)); });
  }

  template <class Value>
  using widest = std::conditional_t<std::is_same_v<Value, double>, double, float>;

  T& workers_;
  settings const& chosen_;
  std::optional<mean_type> mean_;
  std::vector<float> input_, output_;
  std::vector<double> sums_;
  report report_;
};

}  // namespace mean_of_files
