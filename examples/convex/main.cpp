// SPDX-License-Identifier: Apache-2.0
/// @file
/// Three methods for strongly convex problems, with threads as workers, each compared with its theorem.

#include "commands.hpp"

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

/// Options of all three: workers, values, a factor on the step, a seed.
template <class Options>
void add_common(CLI::App& command, Options& chosen, long most_values) {
  command.add_option("--workers", chosen.workers, "number of threads")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command.add_option("--values", chosen.values, "of x")
      ->check(CLI::Range(16L, most_values))
      ->capture_default_str();
  command
      .add_option("--step-factor", chosen.step_factor,
                  "multiplies the step that theory asks for; another one may end in status 1")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--seed", chosen.seed, "of the problem and of all random bits")->capture_default_str();
}

template <class Options>
void add_samples(CLI::App& command, Options& chosen) {
  command.add_option("--samples", chosen.samples, "rounded up to a multiple of the workers")
      ->check(CLI::Range(16L, 1000000L))
      ->capture_default_str();
  command.add_option("--ridge", chosen.ridge, "strong convexity that is added to least squares")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

template <class Options>
void round_up_samples(Options& chosen) {
  chosen.samples = (chosen.samples + chosen.workers - 1) / chosen.workers * chosen.workers;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int usage_error = 2, run_error = 3;
  convex::qsvrg_options for_qsvrg;
  convex::gradient_descent_options for_descent;
  convex::iterates_options for_iterates;

  CLI::App app{"Quantized methods on strongly convex problems, held against their theorems."};
  app.require_subcommand(1);
  auto* const qsvrg = app.add_subcommand("qsvrg", "QSGD with variance reduction: converges linearly");
  add_common(*qsvrg, for_qsvrg, 16129);  // levels sqrt(n) are at most 127
  add_samples(*qsvrg, for_qsvrg);
  qsvrg->add_option("--epochs", for_qsvrg.epochs)->check(CLI::Range(2, 1000))->capture_default_str();
  qsvrg->add_option("--seeds", for_qsvrg.seeds, "runs that are averaged")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();

  auto* const descent =
      app.add_subcommand("gradient_descent", "QSGD for gradient descent: the largest values as signs");
  add_common(*descent, for_descent, 65536);
  add_samples(*descent, for_descent);
  descent->add_option("--accuracy", for_descent.accuracy, "gap over that of the start, at which a run ends")
      ->check(CLI::Range(1e-10, 0.5))
      ->capture_default_str();
  descent->add_option("--most-steps", for_descent.most_steps)
      ->check(CLI::Range(10L, 10000000L))
      ->capture_default_str();

  auto* const iterates =
      app.add_subcommand("iterates", "iterates on a grid: random shift, coin flips, rounding to nearest");
  add_common(*iterates, for_iterates, 16384);
  iterates->add_option("--condition", for_iterates.condition, "smoothness over strong convexity")
      ->check(CLI::Range(1.0, 32.0))
      ->capture_default_str();
  iterates->add_option("--coarse-step", for_iterates.coarse_step, "of the grid whose best point is the mark")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  iterates->add_option("--excess", for_iterates.excess, "epsilon, as a share of the gap of that point")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  iterates->add_option("--seeds", for_iterates.seeds, "runs that are averaged")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  iterates
      ->add_option("--average", for_iterates.average,
                   "iterations, times step and beta, over which gaps are averaged")
      ->check(CLI::Range(10L, 1000000L))
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    app.exit(e);
    return e.get_exit_code() == 0 ? EXIT_SUCCESS : usage_error;
  }
  if (*iterates && !std::has_single_bit(static_cast<std::uint64_t>(for_iterates.values))) {
    std::fprintf(stderr, "convex: iterates: --values is %ld; give a power of two\n", for_iterates.values);
    return usage_error;
  }
  if (*iterates && !std::has_single_bit(static_cast<std::uint64_t>(for_iterates.workers))) {
    std::fprintf(stderr,
                 "convex: iterates: --workers is %d; give a power of two, which divides the samples\n",
                 for_iterates.workers);
    return usage_error;
  }
  round_up_samples(for_qsvrg);
  round_up_samples(for_descent);

  try {
    // One thread a worker: workers on one machine share its cores.
    Kokkos::ScopeGuard const kokkos{
        Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
    if (*qsvrg) return convex::qsvrg(for_qsvrg);
    if (*descent) return convex::gradient_descent(for_descent);
    return convex::iterates(for_iterates);
  } catch (std::invalid_argument const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return usage_error;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return run_error;
  }
}
