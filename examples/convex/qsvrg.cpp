// SPDX-License-Identifier: Apache-2.0
/// @file
/// QSVRG compared with SGD and QSGD: gaps, bits, and whether theory holds.

#include "qsvrg.hpp"

#include "claims.hpp"
#include "commands.hpp"

#include <globalq/transport/threads.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace convex {
namespace {

/// The mean over the runs, as rank 0 saw them.
struct curve {
  std::vector<double> gaps;
  double bits = 0;  ///< broadcast by a worker in an epoch
};

template <class Float, class Operator>
curve mean_of_runs(qsvrg_options const& o, regression const& f, Operator const& op, update how,
                   qsvrg_plan const& plan) {
  curve c;
  c.gaps.resize(static_cast<std::size_t>(o.epochs) + 1);
  globalq::transport::threads cluster{o.workers};
  for (int run = 0; run < o.seeds; ++run)
    cluster.run([&](auto& workers) {
      auto const done =
          run_epochs<Float>(workers, f, op, how, plan, o.epochs, o.seed + static_cast<std::uint64_t>(run));
      if (workers.rank() != 0) return;
      for (std::size_t p = 0; p < done.size(); ++p) {
        c.gaps[p] += done[p].gap / o.seeds;
        c.bits += 8.0 * static_cast<double>(done[p].bytes) / (o.workers - 1) / (o.epochs * o.seeds);
      }
    });
  return c;
}

}  // namespace

int qsvrg(qsvrg_options const& o) {
  regression const f = random_regression(o.values, o.samples, o.ridge, o.seed);
  double const n = static_cast<double>(o.values);
  double const levels = levels_of(o.values);
  double const blow_up = 1 + std::min(n / (4 * levels * levels), std::sqrt(n) / levels);
  double const l = f.strong_convexity(), L = f.smoothness_of_each();
  qsvrg_theory const theory(l, L, o.workers, blow_up);
  qsvrg_plan plan = theory.plan(0.9);
  plan.step *= o.step_factor;
  plan.contraction = theory.contraction(plan.step, plan.iterations);

  std::printf(
      "%ld values, %ld samples on %d workers; each f_j is %.3g-smooth, f %.3g-strongly convex: kappa = %.3g\n"
      "step %.3g / L, %llu iterations an epoch: the expected gap falls to %.3g in an epoch\n"
      "(by the paper's blow-up of 2 and for one worker: %llu iterations)\n"
      "gaps over the one at the start, means of %d runs\n\n",
      o.values, o.samples, o.workers, L, l, L / l, plan.step * L,
      static_cast<unsigned long long>(plan.iterations), plan.contraction,
      static_cast<unsigned long long>(qsvrg_theory(l, L, 1, 2).plan(0.9).iterations), o.seeds);

  auto const op = dense_qsgd(o.values);
  curve const sgd = mean_of_runs<float>(o, f, globalq::uncompressed{}, update::plain, plan);
  curve const qsgd = mean_of_runs<float>(o, f, op, update::plain, plan);
  curve const single = mean_of_runs<float>(o, f, op, update::variance_reduced, plan);
  curve const wide = mean_of_runs<double>(o, f, op, update::variance_reduced, plan);

  std::printf(
      "| epoch | SGD | QSGD | QSVRG, F = 32 | QSVRG, F = 64 | 0.9^p |\n| --: | --: | --: | --: | --: | --: "
      "|\n");
  for (std::size_t p = 0; p < wide.gaps.size(); ++p)
    std::printf("| %zu | %.2e | %.2e | %.2e | %.2e | %.2e |\n", p, sgd.gaps[p] / sgd.gaps[0],
                qsgd.gaps[p] / qsgd.gaps[0], single.gaps[p] / single.gaps[0], wide.gaps[p] / wide.gaps[0],
                std::pow(0.9, static_cast<double>(p)));

  double const T = static_cast<double>(plan.iterations);
  std::printf("\n| bits that a worker broadcasts in an epoch | F = 32 | F = 64 |\n| --- | --: | --: |\n");
  std::printf("| published: (F + 2.8 n)(T + 1) + F n | %.0f | %.0f |\n", qsvrg_bits::published(n, T, 32),
              qsvrg_bits::published(n, T, 64));
  std::printf("| proved | %.0f | %.0f |\n", qsvrg_bits::proved(n, T, 32), qsvrg_bits::proved(n, T, 64));
  double const codes[2] = {single.bits - T * qsvrg_bits::overhead(32),
                           wide.bits - T * qsvrg_bits::overhead(64)};
  std::printf("| measured: codes and a float each | %.0f | %.0f |\n", codes[0], codes[1]);
  std::printf("| measured: all that was sent | %.0f | %.0f |\n", single.bits, wide.bits);
  std::printf("| SGD with float32, all that was sent | %.0f | |\n", sgd.bits);

  claims theorem;
  auto const falls = [&](curve const& c, char const* name) {
    for (std::size_t p = 1; p < c.gaps.size(); ++p) {
      double const bound = std::pow(0.9, static_cast<double>(p)) * c.gaps[0];
      theorem.expect(c.gaps[p] <= bound, std::string("qsvrg: ") + name + ": the mean gap after epoch " +
                                             std::to_string(p) + " is " + text(c.gaps[p]) +
                                             ", above 0.9^p times that at the start, " + text(bound));
    }
  };
  falls(single, "F = 32");
  falls(wide, "F = 64");
  theorem.expect(codes[0] <= qsvrg_bits::proved(n, T, 32) && codes[1] <= qsvrg_bits::proved(n, T, 64),
                 "qsvrg: codes and floats have " + text(codes[0]) + " and " + text(codes[1]) +
                     " bits an epoch, more than the bound that is proved");
  std::size_t const half = wide.gaps.size() / 2, last = wide.gaps.size() - 1;
  theorem.expect(qsgd.gaps[last] >= 0.1 * qsgd.gaps[half] && sgd.gaps[last] >= 0.1 * sgd.gaps[half],
                 "qsvrg: SGD or QSGD still fell tenfold in the second half of the epochs; with a fixed step "
                 "they must stall at their noise");
  theorem.expect(wide.gaps[last] <= 1e-3 * qsgd.gaps[last],
                 "qsvrg: the gap of QSVRG at the end is " + text(wide.gaps[last]) +
                     ", and that of QSGD, which stalls, is " + text(qsgd.gaps[last]) +
                     "; run more epochs if there are few");
  return theorem.exit_status();
}

}  // namespace convex
