// SPDX-License-Identifier: Apache-2.0
#include "../support/floors.hpp"
#include "operators.hpp"

#include <globalq/train/learn/histogram.hpp>
#include <globalq/train/learn/optimal.hpp>

namespace globalq::bench {
namespace {

constexpr std::uint64_t bucket = 512;

/// Times a kernel that reads a vector once, and a loop that only reads it.
template <class Value, class Kernel>
void against_reading(benchmark::State& state, point at, values<Value> const& x, Kernel const& kernel) {
  using word = std::conditional_t<sizeof(Value) == 2, std::uint16_t, std::uint32_t>;
  std::vector<word> tops(at.n / block_values);
  read_floor<word> const floor{reinterpret_cast<word const*>(x.data()), tops.data()};
  auto const on = at.executor();
  interleave(state, {at.n, at.n * sizeof(Value)}, kernel, [&] { on.items(tops.size(), floor); });
}

/// The l2 norms of buckets and the histogram of the values divided by them.
template <class Value>
void count(benchmark::State& state, point at) {
  auto const on = at.executor();
  auto const x = gradient<Value>(at.n, 1);
  learn::histogram h;
  auto const kernel = [&] {
    h.clear();
    h.add(on, reading(x), at.n, bucket, 2U);
  };

  kernel();
  double mass = 0, moment = 0, expected = 0, squares = 0;
  learn::bins const b = h.result();
  for (std::size_t k = 0; k < b.size(); ++k) {
    mass += b.mass[k];
    moment += b.mass[k] * b.mean[k];
  }
  for (std::uint64_t first = 0; first < at.n; first += bucket) {
    double sum = 0, square = 0;
    for (std::uint64_t i = first; i < first + bucket; ++i) {
      double const v = std::fabs(static_cast<double>(static_cast<float>(x(i))));
      sum += v;
      square += v * v;
    }
    expected += sum * std::sqrt(square);  // sum / norm, weighted by its square
    squares += square * static_cast<double>(bucket);
  }
  expected /= squares;
  // ratios and their sums with the floor of the histogram are rounded to 2^-24 each, weights to 2^-32
  if (!(std::fabs(mass - 1) <= 1e-9 && std::fabs(moment - expected) <= 1e-5 * expected))
    return fail(state, "the mean magnitude is " + std::to_string(moment) + " and should be " +
                           std::to_string(expected));
  against_reading(state, at, x, kernel);
}

/// An update without the exchange: norms, histogram and 16 levels.
template <class Solver>
void update(benchmark::State& state, point at, Solver const& solver) {
  auto const on = at.executor();
  auto const x = gradient<float>(at.n, 1);
  learn::histogram h;
  learn::solution found;
  auto const kernel = [&] {
    h.clear();
    h.add(on, reading(x), at.n, bucket, 2U);
    found = solver(h.result());
    benchmark::DoNotOptimize(found);
  };

  kernel();
  learn::piecewise_uniform const f(h.result());
  double const even = learn::variance(f, learn::uniform_levels(solver.size));
  if (!(found.variance > 0 && found.variance < 0.5 * even))
    return fail(state, "the learned levels are hardly better than even ones");
  against_reading(state, at, x, kernel);
}

}  // namespace

void add_learning() {
  for_each_type([]<class Value>(Value, std::string const& suffix) {
    add("learn/histogram" + suffix, [](benchmark::State& state, point at) { count<Value>(state, at); });
  });
  constexpr std::uint32_t above_zero = 15;  // sixteen levels
  add("learn/update/optimal",
      [](benchmark::State& state, point at) { update(state, at, learn::optimal{.size = above_zero}); });
  add("learn/update/alq", [](benchmark::State& state, point at) {
    update(state, at, learn::coordinate_descent{.size = above_zero});
  });
}

}  // namespace globalq::bench
