// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The time of a step if the next forward pass waits for all layers, or for each layer when it needs it.

#include "groups.hpp"

namespace globalq::bench {

/// Measures steps of a forward pass, half as long as the backward pass, and means that overlap with both.
template <Transport T>
void time_barrier(T& workers, backward_pass const& pass) {
  using clock = std::chrono::steady_clock;
  adapt::model_layout model;
  for (std::size_t l = 0; l < pass.layers; ++l) model.add("layer " + std::to_string(l), {pass.values});
  std::mt19937 draw(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> gradients(pass.layers, std::vector<float>(pass.values));
  for (auto& g : gradients)
    for (float& v : g) v = normal(draw);
  auto const compute = [](clock::time_point& due, double milliseconds) {
    due =
        std::max(due, clock::now()) + std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * milliseconds));
    std::this_thread::sleep_until(due);
  };
  double const backward = 1e-3 * pass.milliseconds * static_cast<double>(pass.layers);
  std::uint64_t step = 0;
  /// Seconds of a step, of the slowest worker.
  auto const seconds = [&](any_quantizer const& op, double share, bool by_layer, bool computes) {
    adapt::overlapped_mean mean{workers,
                                model,
                                std::vector<any_quantizer>(pass.layers, op),
                                schedule::sra{},
                                {.group_bytes = 1, .backward_share = share}};
    std::vector<double> all;
    for (int k = 0; k < 3; ++k) {  // the first one warms up
      if (k < 2) transport::barrier(workers);
      auto const begun = clock::now();
      auto due = begun;
      mean.begin(++step);
      for (std::size_t l = pass.layers; l-- != 0;) {
        if (computes) compute(due, pass.milliseconds);
        mean.ready(l, gradients[l]);
      }
      if (!by_layer) mean.wait();
      for (std::size_t l = 0; l < pass.layers; ++l) {
        if (by_layer) mean.wait(l);
        if (computes) compute(due, pass.milliseconds / 2);
      }
      mean.wait();
      if (k != 0) all.push_back(std::chrono::duration<double>(clock::now() - begun).count());
    }
    return model::detail::slowest(workers, all);
  };
  if (workers.rank() == 0)
    std::printf(
        "%d workers, %zu layers of %llu values, %.3g ms each in the backward pass and half of it forward.\n\n"
        "| operator | means alone | wait for all | layer by layer | and first layers first | gain |\n"
        "| --- | --: | --: | --: | --: | --: |\n",
        workers.size(), pass.layers, static_cast<unsigned long long>(pass.values), pass.milliseconds);
  for (int const bits : {32, 8, 4}) {
    any_quantizer const op = bits == 32 ? any_quantizer(uncompressed{})
                                        : adapt::cgx_quantizer({static_cast<std::uint32_t>(bits), 128});
    double alone = median(seconds(op, 1, false, false));
    transport::broadcast(workers, 0, std::as_writable_bytes(std::span(&alone, 1)));
    double const share = std::min(1.0, backward / alone);
    std::vector<double> all, layers, ordered;
    for (int k = 0; k < pass.repeat; ++k)
      for (auto& [into, by_layer, of] : {std::tuple<std::vector<double>&, bool, double>{all, false, 1.0},
                                         {layers, true, 1.0},
                                         {ordered, true, share}}) {
        auto const found = seconds(op, of, by_layer, true);
        into.insert(into.end(), found.begin(), found.end());
      }
    if (workers.rank() != 0) continue;
    std::vector<double> ratios;
    for (std::size_t k = 0; k < all.size(); ++k) ratios.push_back(all[k] / ordered[k]);
    model::measured const gain = model::detail::quartiles(ratios);
    std::printf("| %s | %.1f ms | %.1f | %.1f | %.1f | %.2f (%.2f to %.2f) |\n",
                bits == 32 ? "float32" : (bits == 8 ? "cgx:8" : "cgx:4"), 1e3 * alone, 1e3 * median(all),
                1e3 * median(layers), 1e3 * median(ordered), gain.value, gain.low, gain.high);
    std::fflush(stdout);
  }
}

}  // namespace globalq::bench
