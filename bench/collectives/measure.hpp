// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: one worker's part, the same for every transport.

#include "../support/data.hpp"
#include "operators.hpp"
#include "options.hpp"
#include "report.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/telemetry/telemetry.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

namespace globalq::bench {

/// @brief The MPI library's own sum of float32: (x, sum, values); empty without MPI.
using library_allreduce = std::function<void(float const*, float*, std::uint64_t)>;

/// @brief One worker's run. All workers must call each member together.
template <Transport T>
class worker {
 public:
  worker(T& workers, settings const& chosen, library_allreduce sum)
      : workers_{workers}, chosen_{chosen}, sum_{std::move(sum)} {}

  /// @brief Measures everything; the report is the same on every worker.
  report run() {
    report all;
    all.workers = workers_.size();
    all.threads = chosen_.threads;
    all.rate = chosen_.rate;
    all.baseline = sum_ ? library_sum : operators().front().name;
    for (std::uint64_t const n : chosen_.sizes) {
      auto rows = measure(n);
      all.rows.insert(all.rows.end(), std::make_move_iterator(rows.begin()),
                      std::make_move_iterator(rows.end()));
    }
    return all;
  }

 private:
  using mean = allreduce_mean<>;
  using clock = std::chrono::steady_clock;

  static double seconds_since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  /// One operator in a run.
  struct entry {
    std::function<void(std::uint64_t step)> call;  ///< from x_ to y_
    double divisor = 1;                            ///< y_ must still be divided by this
    std::vector<double> seconds;                   ///< this worker's
    row result;
  };

  std::vector<row> measure(std::uint64_t n) {
    x_ = gradient<float>(n, static_cast<std::uint64_t>(workers_.rank()) + 1);
    y_ = values<float>("result", n);
    std::vector<entry> entries = prepare(n);

    // In turn, so that other load, clock rate and network affect all equally; the first round is a warm-up.
    constexpr std::uint64_t fewest = 3;
    auto const start = clock::now();
    std::uint64_t rounds = 0;
    for (bool more = true; more; ++rounds) {
      for (entry& each : entries)
        if (each.result.refusal.empty()) time_one(each, rounds);
      bool const enough = rounds >= chosen_.repeat || (rounds >= std::min(fewest, chosen_.repeat) &&
                                                       seconds_since(start) > chosen_.budget);
      more = transport::broadcast_value(workers_, 0, !enough);
    }

    make_reference(n);
    std::vector<row> rows;
    for (entry& each : entries) {
      if (each.result.refusal.empty()) {
        gather(each);
        check(each, rounds);
      }
      rows.push_back(std::move(each.result));
    }
    return rows;
  }

  std::vector<entry> prepare(std::uint64_t n) {
    std::vector<entry> entries;
    auto const workers = static_cast<std::uint64_t>(workers_.size());
    if (sum_) {
      entry e;
      e.call = [this](std::uint64_t) { sum_(x_.data(), y_.data(), x_.size()); };
      e.divisor = static_cast<double>(workers);
      e.result.name = library_sum;
      e.result.bytes = 4 * n * 2 * (workers - 1) / workers;
      e.result.bytes_modeled = true;
      e.result.must_be_identical = false;
      e.result.sends_float32 = true;
      entries.push_back(std::move(e));
    }
    for (contestant const& each : operators()) {
      bool const is_base = !sum_ && entries.empty();
      if (!is_base && !chosen_.operators.empty() &&
          std::find(chosen_.operators.begin(), chosen_.operators.end(), each.name) == chosen_.operators.end())
        continue;
      entry e;
      e.result.name = each.name;
      e.result.must_be_identical = each.same_bits;
      globalq::plan const p =
          plan_for(each.op, each.schedule, workers_.size(), n, dtype::float32, chosen_.chunk_values);
      e.result.refusal = p.refusal;
      if (p.fits) {
        e.result.bytes = p.bytes_modeled ? p.bytes_sent : 0;
        e.result.bytes_modeled = p.bytes_modeled;
        e.result.sends_float32 = !each.op.facts().rounds();
        e.result.bound = e.result.sends_float32 ? 0.0 : p.theta;
        options settings{.seed = 1, .chunk_values = chosen_.chunk_values};
        std::shared_ptr<telemetry> seen;
        if (each.telemetry != watched::nothing) {
          seen = std::make_shared<telemetry>(telemetry_options{.errors = each.telemetry == watched::errors});
          settings.telemetry = seen.get();
        }
        auto const m = std::make_shared<mean>(workers_, each.op, each.schedule, settings);
        e.call = [this, m, seen](std::uint64_t step) { (*m)(x_, y_, step); };
      }
      entries.push_back(std::move(e));
    }
    // float32 rounds each of n - 1 additions and the division
    for (entry& e : entries)
      e.result.bound +=
          std::pow(static_cast<double>(workers + 1) * 0x1p-24, 2) * static_cast<double>(workers);
    for (entry& e : entries) e.result.values = n;
    return entries;
  }

  void time_one(entry& each, std::uint64_t round) {
    transport::barrier(workers_);
    std::uint64_t const before = workers_.bytes_sent();
    auto const start = clock::now();
    each.call(round);
    double const seconds = seconds_since(start);
    if (!each.result.bytes_modeled) each.result.bytes = workers_.bytes_sent() - before;
    if (round != 0) each.seconds.push_back(seconds);
  }

  /// Median over calls of the slowest worker's time; bytes of the worker that sends most.
  void gather(entry& each) {
    auto const n = static_cast<std::size_t>(workers_.size());
    std::size_t const calls = each.seconds.size();
    std::vector<double> all(n * calls);
    transport::allgather(workers_, std::as_bytes(std::span{each.seconds}),
                         std::as_writable_bytes(std::span{all}));
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t i = 0; i < calls; ++i) each.seconds[i] = std::max(each.seconds[i], all[r * calls + i]);
    std::sort(each.seconds.begin(), each.seconds.end());
    each.result.seconds = (each.seconds[(calls - 1) / 2] + each.seconds[calls / 2]) / 2;
    each.result.calls = calls;
    std::vector<std::uint64_t> bytes(n);
    transport::allgather_value(workers_, each.result.bytes, std::span{bytes});
    each.result.bytes = *std::max_element(bytes.begin(), bytes.end());
  }

  /// Makes one more call; compares its result between workers and with the exact mean.
  void check(entry& each, std::uint64_t step) {
    Kokkos::deep_copy(y_, -1.0F);
    each.call(step);
    std::uint64_t const mine = digest();
    std::vector<std::uint64_t> all(static_cast<std::size_t>(workers_.size()));
    transport::allgather_value(workers_, mine, std::span{all});
    each.result.identical = std::all_of(all.begin(), all.end(), [&](std::uint64_t d) { return d == all[0]; });
    double error = 0;
    if (workers_.rank() == 0)
      for (std::size_t i = 0; i < mean_.size(); ++i)
        error += std::pow(static_cast<double>(y_(i)) / each.divisor - mean_[i], 2);
    each.result.nmse = transport::broadcast_value(workers_, 0, power_ > 0 ? error / power_ : error);
  }

  std::uint64_t digest() const {
    std::uint64_t d = 0;
    for (std::size_t i = 0; i < y_.size(); ++i) {
      std::uint32_t word = 0;
      float const value = y_(i);
      std::memcpy(&word, &value, sizeof word);
      d = (d ^ word) * 0x9E3779B97F4A7C15ULL;
      d ^= d >> 32;
    }
    return d;
  }

  /// On rank 0: the mean of all vectors in double, and the mean of their squared norms.
  void make_reference(std::uint64_t n) {
    power_ = 0;
    if (workers_.rank() != 0) return;
    mean_.assign(n, 0.0);
    for (int r = 0; r < workers_.size(); ++r) {
      auto const x = gradient<float>(n, static_cast<std::uint64_t>(r) + 1);
      for (std::size_t i = 0; i < n; ++i) {
        double const value = static_cast<double>(x(i));
        mean_[i] += value / workers_.size();
        power_ += value * value / workers_.size();
      }
    }
  }

  T& workers_;
  settings const& chosen_;
  library_allreduce sum_;
  values<float> x_, y_;
  std::vector<double> mean_;
  double power_ = 0;
};

}  // namespace globalq::bench
