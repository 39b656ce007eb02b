// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief T(g), the time of a byte of each group of layers during a backward pass, and the gain of choosing by it.

#include <globalq/model/calibrate.hpp>
#include <globalq/schedule/scatter_reduce_allgather.hpp>
#include <globalq/train/adapt/cgx.hpp>
#include <globalq/train/adapt/chooser.hpp>
#include <globalq/train/adapt/error_table.hpp>
#include <globalq/train/adapt/lgreco.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>
#include <globalq/train/adapt/quantizer_errors.hpp>
#include <globalq/train/adapt/time_weights.hpp>
#include <globalq/transport/collectives.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace globalq::bench {

/// A backward pass of equal layers whose gradients differ only in scale.
struct backward_pass {
  std::size_t layers = 12;
  std::uint64_t values = 512 << 10;  ///< of a layer
  double milliseconds = 4;           ///< of a layer; the processor is free meanwhile, as if a GPU computed
  int samples = 60;
  int repeat = 15;  ///< steps of each compared choice
};

inline double median(std::vector<double> v) {
  return v.empty() ? 0 : model::detail::quartiles(std::move(v)).value;
}

/// Measures steps with random bits in every group, fits T(g) to two thirds of them, tests it on the others, compares
/// choices.
template <Transport T>
void time_groups(T& workers, backward_pass const& pass) {
  using clock = std::chrono::steady_clock;
  bool const speaks = workers.rank() == 0;
  adapt::model_layout model;
  for (std::size_t l = 0; l < pass.layers; ++l) model.add("layer " + std::to_string(l), {pass.values});
  std::vector<adapt::bits_and_bucket> const candidates = adapt::bits_and_buckets(2, 8, 64, 1024);
  std::vector<any_quantizer> operators;
  for (auto const& c : candidates) operators.push_back(adapt::cgx_quantizer(c));
  std::uint32_t const four_bits = 2;

  // gradients are normal; their scales differ between layers by a factor of up to 16
  std::mt19937 draw(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> gradients(pass.layers), means;
  adapt::gradient_accumulator sum(model);
  std::vector<float> whole;
  for (std::size_t l = 0; l < pass.layers; ++l) {
    float const scale = std::exp2(static_cast<float>(draw() % 5));
    gradients[l].resize(pass.values);
    for (float& v : gradients[l]) v = scale * normal(draw);
    whole.insert(whole.end(), gradients[l].begin(), gradients[l].end());
  }
  sum.add(std::span<float const>(whole));
  adapt::choice_table const table = adapt::measure(sum, adapt::quantizers(operators));

  adapt::overlapped_mean mean{workers, model, std::vector<any_quantizer>(pass.layers, operators[four_bits]),
                              schedule::sra{}};
  std::vector<std::size_t> group_of;
  for (std::size_t l = 0; l < pass.layers; ++l) group_of.push_back(mean.group_of(l));
  std::uint64_t step = 0;
  /// Seconds from the first group's start to the last one's end, of the slowest worker.
  auto const seconds = [&](std::vector<std::uint32_t> const& choice, int times) {
    for (std::size_t l = 0; l < pass.layers; ++l) mean.assign(l, operators[choice[l]]);
    std::vector<double> all;
    for (int k = 0; k < times; ++k) {
      means = gradients;
      transport::barrier(workers);
      mean.begin(++step);
      auto due = clock::now(), begun = due;
      for (std::size_t l = pass.layers; l-- != 0;) {
        due += std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * pass.milliseconds));
        std::this_thread::sleep_until(due);
        if (group_of[l] == 0) begun = clock::now();  // the last of its layers starts it
        mean.ready(l, means[l]);
      }
      mean.wait();
      all.push_back(std::chrono::duration<double>(clock::now() - begun).count());
    }
    return model::detail::slowest(workers, all);
  };
  auto const bytes = [&](std::vector<std::uint32_t> const& choice) {
    std::vector<double> of(mean.groups());
    for (std::size_t l = 0; l < pass.layers; ++l) of[group_of[l]] += table[l][choice[l]].cost;
    return of;
  };

  seconds(std::vector<std::uint32_t>(pass.layers, four_bits), 3);  // warms up
  std::vector<std::pair<std::vector<double>, double>> samples;
  for (int k = 0; k < pass.samples; ++k) {
    std::vector<std::uint32_t> of_group(mean.groups()), choice(pass.layers);
    for (auto& c : of_group) c = static_cast<std::uint32_t>(draw() % candidates.size());
    for (std::size_t l = 0; l < pass.layers; ++l) choice[l] = of_group[group_of[l]];
    samples.emplace_back(bytes(choice), median(seconds(choice, 3)));
  }
  std::size_t const told = samples.size() * 2 / 3;
  adapt::time_regression some(mean.groups()), all(mean.groups());
  for (std::size_t k = 0; k < samples.size(); ++k) {
    if (k < told) some.add(samples[k].first, samples[k].second);
    all.add(samples[k].first, samples[k].second);
  }
  adapt::time_model const fitted = some.fit(), times = all.fit();
  std::vector<double> errors;
  for (std::size_t k = told; k < samples.size(); ++k)
    errors.push_back(std::fabs(fitted(samples[k].first) / samples[k].second - 1));

  std::vector<std::uint32_t> const reference(pass.layers, four_bits);
  double const budget = adapt::budget_of(table, reference);
  auto const by_bytes = adapt::lgreco{}(table, budget, reference).choices;
  auto by_time = adapt::lgreco{}(adapt::weighted(table, group_of, times), budget, reference).choices;
  transport::broadcast(workers, 0, std::as_writable_bytes(std::span(by_time)));
  struct compared {
    char const* name;
    std::vector<std::uint32_t> const& choice;
    std::vector<double> seconds;
  } rows[] = {{"4 bits everywhere", reference, {}}, {"by bytes", by_bytes, {}}, {"by time", by_time, {}}};
  for (int k = 0; k < pass.repeat; ++k)  // in turn
    for (compared& r : rows) r.seconds.push_back(seconds(r.choice, 1).front());
  if (!speaks) return;

  std::printf("%d workers, %zu layers of %llu values, %.3g ms each in the backward pass; %d samples.\n\n",
              workers.size(), pass.layers, static_cast<unsigned long long>(pass.values), pass.milliseconds,
              pass.samples);
  std::printf("| group, in order of sending |");
  for (std::size_t b = 0; b < mean.groups(); ++b) std::printf(" %zu |", b);
  std::printf("\n| --- |");
  for (std::size_t b = 0; b < mean.groups(); ++b) std::printf(" --: |");
  std::printf("\n| T(g), ns a byte |");
  for (double t : times.seconds_per_byte) std::printf(" %.1f |", 1e9 * t);
  std::printf(
      "\n\nBase %.1f ms, R^2 %.3f; median error %.1f %% over %zu steps that were not used for the fit.\n\n",
      1e3 * times.base, times.score, 100 * median(errors), errors.size());
  std::printf(
      "| choice | bits of the layers, first to last | bytes a worker encodes | squared error | predicted | "
      "measured (quartiles) "
      "|\n| --- | --- | --: | --: | --: | --: |\n");
  for (compared const& r : rows) {
    std::string bits;
    for (std::uint32_t const c : r.choice) bits += std::to_string(candidates[c].bits);
    model::measured const took = model::detail::quartiles(r.seconds);
    std::printf("| %s | %s | %.0f | %.3f of the budget | %.1f ms | %.1f ms (%.1f to %.1f) |\n", r.name,
                bits.c_str(), table.cost(r.choice), table.error(r.choice) / budget,
                1e3 * times(bytes(r.choice)), 1e3 * took.value, 1e3 * took.low, 1e3 * took.high);
  }
  std::fflush(stdout);
}

}  // namespace globalq::bench
