// SPDX-License-Identifier: Apache-2.0
/// @file
/// Quantized iterates: random shift, coin flips and rounding to nearest, and whether theory holds.

#include "iterates.hpp"

#include "claims.hpp"
#include "commands.hpp"

#include <globalq/transport/threads.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>

namespace convex {
namespace {

namespace gq = globalq;

constexpr double reach = 1.5;  // of the grid: the optimum lies in [-1, 1]

/// The mean over the runs.
template <class Gradients, class Rounding, class Wire>
iterates_run mean_of_runs(iterates_options const& o, diagonal_regression const& problem,
                          Gradients const& gradients, grid const& points, Rounding rounding, Wire wire,
                          double step, std::uint64_t steps, std::uint64_t average) {
  iterates_run sum;
  gq::transport::threads cluster{o.workers};
  for (int run = 0; run < o.seeds; ++run)
    cluster.run([&](auto& workers) {
      auto const mine = iterate(workers, problem, gradients, points, rounding, wire, step, steps, average,
                                o.seed + static_cast<std::uint64_t>(run));
      if (workers.rank() != 0) return;
      sum.last += mine.last / o.seeds;
      sum.mean += mine.mean / o.seeds;
      sum.bytes = mine.bytes;
    });
  return sum;
}

/// The largest value of a worker's gradient: at the start, because rows of one worker are not orthogonal.
double gradient_reach(int workers) { return 4 * std::sqrt(static_cast<double>(workers)); }

/// Variance of the mean of the workers' gradients, all values, each rounded by random shift.
double gradient_variance(iterates_options const& o, double delta) {
  return static_cast<double>(o.values) * delta * delta / 12 / o.workers;
}

/// Gradients on a grid whose shift is drawn for each value, so that errors are independent; a fixed scale costs no bytes.
auto gradient_grid(grid const& points) {
  auto op = gq::operators::qsdp_grid<16>(points.unit, points.levels);
  op.norm.bucket = 1;
  return op;
}

/// The parameters of Theorem 2, and its promise.
void hold_theorem(iterates_options const& o, diagonal_regression const& problem, claims& theorem) {
  double const alpha = problem.curvatures.minCoeff(), beta = problem.curvatures.maxCoeff();
  double const mark = problem.best_of_grid(o.coarse_step), epsilon = o.excess * mark;
  grid const of_gradients{gradient_reach(o.workers), 32767, 1};
  double const start = problem.gap(VectorXd::Zero(o.values));
  iterates_plan const plan(alpha, beta, o.coarse_step, gradient_variance(o, of_gradients.step()), epsilon,
                           start - mark);
  auto const gradients = gradient_grid(of_gradients);
  auto const run = [&](double delta, auto rounding) {
    return mean_of_runs(o, problem, gradients, grid::of_step(delta, reach), rounding, gq::wire::int16{},
                        o.step_factor * plan.eta / beta, plan.iterations, 1);
  };

  std::printf(
      "Theorem 2 with eta = %.3g: %llu iterations from a gap of %.4g; gradients rounded, too\n"
      "mark: the mean gap of the best points of a grid of step %.3g; epsilon = %.3g; gaps at the end, means "
      "of %d runs\n\n"
      "| delta | | random shift | coin flips | mark + epsilon | bytes a step and worker |\n"
      "| --: | --- | --: | --: | --: | --: |\n",
      plan.eta, static_cast<unsigned long long>(plan.iterations), start, o.coarse_step, epsilon, o.seeds);
  auto const row = [&](double delta, char const* what, bool promises_coins) {
    auto const shift = run(delta, gq::rounding::random_shift<>{});
    auto const coins = run(delta, gq::rounding::stochastic{});
    std::printf("| %.3g | %s | %.3e | %.3e | %.4g | %.0f |\n", delta, what, shift.last, coins.last,
                mark + epsilon, static_cast<double>(shift.bytes) / static_cast<double>(plan.iterations));
    auto const hold = [&](char const* name, double gap) {
      theorem.expect(gap <= mark + epsilon, std::string("iterates: ") + name + " on a grid of step " +
                                                text(delta) + " ended at a mean gap of " + text(gap) +
                                                ", above mark + epsilon = " + text(mark + epsilon));
    };
    hold("random shift", shift.last);
    if (promises_coins) hold("coin flips", coins.last);
  };
  row(plan.delta, "as published", true);
  row(plan.enough_coins, "enough for coin flips", true);
  row(plan.enough_shift, "enough for random shift", false);
  std::printf("\n");
}

/// A coarser grid, where roundings differ measurably: gaps in the long run compared with the expected ones.
class comparison {
 public:
  comparison(iterates_options const& o, diagonal_regression const& problem, claims& theorem)
      : o_(o),
        problem_(problem),
        theorem_(theorem),
        beta_(problem.curvatures.maxCoeff()),
        kappa_(beta_ / problem.curvatures.minCoeff()) {}

  void operator()() {
    double const delta = points_.step(), whole = o_.step_factor / beta_, quarter = whole / 4;
    // noise of 0.4 delta per step and value: enough to spread values evenly between points
    grid const of_gradients =
        grid::of_step(0.4 * delta / whole * std::sqrt(12.0 * o_.workers), gradient_reach(o_.workers));
    auto const rounded = gradient_grid(of_gradients);
    double const noise = gradient_variance(o_, of_gradients.step()) / static_cast<double>(o_.values);
    long_run const exact{problem_.curvatures, whole, 0, delta}, small{problem_.curvatures, quarter, 0, delta},
        noisy{problem_.curvatures, whole, noise, delta};
    gq::rounding::random_shift<> const shift;
    gq::rounding::random_shift<false> const unshifted;
    gq::rounding::stochastic const coins;
    gq::uncompressed const float32;
    VectorXd const& optimum = problem_.f.optimum();

    std::printf(
        "A grid of step %.3g (8 bits): gaps in the long run, means of %ld beta / step iterations of %d "
        "runs\n\n"
        "| rounding of x | gradients | step times beta | measured | expected | measured / expected |\n"
        "| --- | --- | --: | --: | --: | --: |\n",
        delta, o_.average, o_.seeds);
    points_.sharing = 0;
    row("random shift, one a shard", shift, float32, whole, exact.shift(), 0.25);
    points_.sharing = 1;
    double const shifted = row("random shift", shift, float32, whole, exact.shift());
    row("coin flips", coins, float32, whole, exact.coins(optimum));
    row("random shift, not shifted back", unshifted, float32, whole, exact.coins(optimum));
    row("random shift", shift, float32, quarter, small.shift());
    row("coin flips", coins, float32, quarter, small.coins(optimum));
    row("random shift", shift, rounded, whole, noisy.shift());
    row("coin flips", coins, rounded, whole, noisy.coins_with_noise());

    double const stuck = mean_of_runs(o_, problem_, float32, points_, gq::rounding::nearest{},
                                      gq::wire::int8{}, whole, burn_in(whole), 1)
                             .last;
    double const most = exact.nearest_at_most();
    std::printf("| nearest | float32 | %.3g | %.3e | at most %.3e | |\n", whole * beta_, stuck, most);
    theorem_.expect(stuck <= most, "iterates: rounding to nearest ended at a gap of " + text(stuck) +
                                       ", above " + text(most));

    double const coarser = std::sqrt(kappa_), mark = problem_.best_of_grid(coarser * delta);
    std::printf("\nThe best points of a grid %.3g times as coarse have a mean gap of %.3e.\n", coarser, mark);
    theorem_.expect(shifted <= mark, "iterates: random shift ended at a mean gap of " + text(shifted) +
                                         ", and the best points of a grid sqrt(kappa) times as coarse have " +
                                         text(mark));
  }

 private:
  /// After this many steps, the influence of the start is negligible.
  std::uint64_t burn_in(double step) const {
    return static_cast<std::uint64_t>(std::ceil(12 * kappa_ / (step * beta_)));
  }

  /// @param tolerance  z^2 of a value varies by about twice its square, and 200 beta / step iterations hold 50 independent
  ///                   ones of the flattest value if kappa is 8: of 512 independent values in 2 runs that leaves 0.6 %,
  ///                   and of values that all move together in 4 shards 7 %.
  template <class Rounding, class Gradients>
  double row(char const* name, Rounding rounding, Gradients const& gradients, double step, double expected,
             double tolerance = 0.05) {
    auto const average =
        static_cast<std::uint64_t>(std::ceil(static_cast<double>(o_.average) / (step * beta_)));
    double const gap = mean_of_runs(o_, problem_, gradients, points_, rounding, gq::wire::int8{}, step,
                                    burn_in(step) + average, average)
                           .mean;
    char const* const kind = std::is_same_v<Gradients, gq::uncompressed> ? "float32" : "on a grid";
    std::printf("| %s | %s | %.3g | %.3e | %.3e | %.3f |\n", name, kind, step * beta_, gap, expected,
                gap / expected);
    theorem_.expect(std::abs(gap / expected - 1) <= tolerance,
                    std::string("iterates: ") + name + ", gradients " + kind + ", step " +
                        text(step * beta_) + " / beta: the gap is " + text(gap) +
                        " in the long run, and expected are " + text(expected) + " within " +
                        text(100 * tolerance) + " %");
    return gap;
  }

  iterates_options const& o_;
  diagonal_regression const& problem_;
  claims& theorem_;
  double beta_, kappa_;
  grid points_{reach, 127, 1};
};

}  // namespace

int iterates(iterates_options const& o) {
  auto const problem = make_diagonal_regression(o.values, o.values, o.condition, o.seed);
  std::printf(
      "%ld values and samples on %d workers, diagonal Hessian from %.3g to 1: beta / alpha = %.3g\n\n",
      o.values, o.workers, problem.curvatures.minCoeff(), o.condition);
  claims theorem;
  hold_theorem(o, problem, theorem);
  comparison(o, problem, theorem)();
  return theorem.exit_status();
}

}  // namespace convex
