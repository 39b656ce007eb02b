// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradient descent with signs compared with float32: steps, bits, and whether theory holds.

#include "gradient_descent.hpp"

#include "claims.hpp"
#include "commands.hpp"

#include <globalq/transport/threads.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace convex {
namespace {

constexpr std::uint64_t every = 10;  // steps between measurements of the gap

}  // namespace

int gradient_descent(gradient_descent_options const& o) {
  regression const f = random_regression(o.values, o.samples, o.ridge, o.seed);
  auto const n = static_cast<std::uint64_t>(o.values);
  double const L = f.smoothness(), l = f.strong_convexity();

  globalq::transport::threads cluster{o.workers};
  std::uint64_t largest_shard = 0;
  descent_run plain, signs, own;
  auto const run = [&](descent how, double step, long most) {
    descent_run result;
    cluster.run([&](auto& workers) {
      auto const mine = descend(workers, f, how, step, o.accuracy, static_cast<std::uint64_t>(most), every);
      if (workers.rank() == 0) result = mine;
    });
    return result;
  };
  cluster.run([&](auto& workers) {
    globalq::all_gather const gather{workers, globalq::uncompressed{}};
    if (workers.rank() == 0) largest_shard = gather.shard(n, 0).count;
  });
  auto const k = static_cast<double>(most_signs(largest_shard));
  auto const whole = static_cast<double>(most_signs(n));
  // Of a step c / (k L), c up to 1: c (2 - c) l / (k L). A longer one is compared with the rate of c = 1.
  double const c = std::min(o.step_factor, 1.0), rate = c * (2 - c) * l / (L * k);

  plain = run(descent::float32, o.step_factor / L, o.most_steps);
  signs = run(descent::signs_of_mean, o.step_factor / (L * k), o.most_steps);
  own = run(descent::signs_of_workers, o.step_factor / (L * whole), static_cast<long>(signs.steps));

  std::printf(
      "%ld values, %ld samples on %d workers; f is %.3g-smooth and %.3g-strongly convex: kappa = %.3g\n"
      "signs of shards of %llu values, at most k = %g each; step 1 / (k L): the gap falls by at least l / (k "
      "L) = "
      "%.3g a step\n\n",
      o.values, o.samples, o.workers, L, l, L / l, static_cast<unsigned long long>(largest_shard), k, rate);
  std::printf(
      "| what travels | step times L | steps | gap over that at the start | rate a step | bits a step and "
      "worker to form the mean | bits a step and worker to tell it |\n| --- | --: | --: | --: | --: | --: | "
      "--: |\n");
  auto const row = [&](char const* name, descent_run const& r, double step) {
    double const steps = static_cast<double>(r.steps), end = r.gaps.back() / r.gaps.front();
    double const bits = 8.0 / steps;
    std::printf("| %s | %.4f | %.0f | %.2e | %.4f | %.0f | %.0f |\n", name, step * L, steps, end,
                1 - std::pow(end, 1 / steps), static_cast<double>(r.sum_bytes) * bits,
                static_cast<double>(r.step_bytes) * bits);
  };
  row("float32", plain, o.step_factor / L);
  row("signs of the mean", signs, o.step_factor / (L * k));
  row("signs of each worker's gradient", own, o.step_factor / (L * whole));
  auto const codes = [&](char const* name, descent_run const& r, double values) {
    double const frames = static_cast<double>(r.frames);
    std::printf(
        "| %s | %.1f | %.0f | %.0f | %.0f |\n", name, static_cast<double>(r.signs) / (frames * o.workers),
        r.code_bits / frames, r.bound_bits / frames,
        bits_of_signs(values, static_cast<double>(most_signs(static_cast<std::uint64_t>(values))), 32));
  };
  std::printf(
      "\n| a frame | signs | bits in Elias's code | k (1 + log2(e n / k)) + F | the same for k = sqrt(n) |\n"
      "| --- | --: | --: | --: | --: |\n");
  codes("of a shard of the mean", signs, static_cast<double>(largest_shard));
  codes("of a worker's gradient", own, static_cast<double>(n));

  claims theorem;
  for (std::size_t i = 1; i < signs.gaps.size(); ++i) {
    // float32 sums: the last digits of the gradient, and of the norm
    double const bound = std::pow(1 - rate, static_cast<double>(every)) * signs.gaps[i - 1] * (1 + 1e-5);
    theorem.expect(signs.gaps[i] <= bound, "gradient_descent: at step " + std::to_string(i * every) +
                                               " the gap is " + text(signs.gaps[i]) +
                                               ", and by the rate it is at most " + text(bound));
    if (signs.gaps[i] > bound) break;  // one sentence is enough
  }
  theorem.expect(signs.gaps.back() <= o.accuracy * signs.gaps.front(),
                 "gradient_descent: signs of the mean did not reach the accuracy in " +
                     std::to_string(signs.steps) + " steps; allow more with --most-steps");
  theorem.expect(own.gaps.back() >= 100 * o.accuracy * own.gaps.front(),
                 "gradient_descent: signs of each worker's own gradient came to " +
                     text(own.gaps.back() / own.gaps.front()) +
                     " of the gap at the start; the workers' gradients do not vanish at the optimum, so they "
                     "must stall");
  return theorem.exit_status();
}

}  // namespace convex
