// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Levels learned from the gradients: four workers, 4 bits a value, before and after.

#include <globalq/globalq.hpp>
#include <globalq/norm/norms.hpp>
#include <globalq/train/learn/level_learner.hpp>

#include <cmath>
#include <iostream>
#include <random>
#include <vector>

namespace gq = globalq;

namespace {

/// Values with tails as heavy as those of gradients, different on each worker.
std::vector<float> gradient_of(int rank) {
  std::mt19937 bits(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> x(1 << 16);
  for (float& v : x) v = 0.01F * std::pow(normal(bits), 3.0F);
  return x;
}

}  // namespace

int main() {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  gq::transport::threads cluster{4};
  bool better = false;
  cluster.run([&](auto& workers) {
    std::vector<float> const gradient = gradient_of(workers.rank());
    std::vector<double> exact(gradient.size(), 0.0);
    for (int r = 0; r < workers.size(); ++r) {
      std::vector<float> const x = gradient_of(r);
      for (std::size_t i = 0; i < x.size(); ++i) exact[i] += static_cast<double>(x[i]) / workers.size();
    }

    gq::norm::linf const norm{.bucket = 512};
    gq::learn::level_learner learner{
        norm, gq::learn::optimal{.size = 7}, {.schedule = {.once = {0}, .every = 10000}}};
    gq::learn::level_set levels = gq::learn::uniform_levels(7);

    // what a training loop does in each step; learned is empty except in the scheduled steps
    if (auto const learned = learner.update(workers, gradient, /*step=*/0)) levels = learned->levels;

    auto const squared_error = [&](gq::learn::level_set const& with) {
      gq::quantizer op{norm, with.table(), gq::rounding::stochastic{}, gq::wire::packed<4>{}};
      gq::allreduce_mean mean{workers, op, gq::schedule::scatter_reduce_allgather{}, {.seed = 42}};
      std::vector<float> x = gradient;
      mean(x, /*step=*/0);
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - exact[i], 2);
      return sum;
    };
    double const even = squared_error(gq::learn::uniform_levels(7)), learned = squared_error(levels);
    if (workers.rank() != 0) return;
    better = learned < even;
    std::cout << "levels:";
    for (double l : levels.values) std::cout << ' ' << l;
    std::cout << "\nsquared error of the mean, even levels: " << even << ", learned: " << learned << '\n';
  });
  return better ? 0 : 1;
}
