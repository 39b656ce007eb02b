// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A program outside the project: four workers average a vector whose values are levels, so nothing is rounded.

#include <globalq/globalq.hpp>

#include <array>
#include <cstdio>

namespace gq = globalq;

int main() {
  Kokkos::ScopeGuard const kokkos;
  bool good = GLOBALQ_VERSION_MAJOR >= 0;
  gq::transport::threads cluster{4};
  cluster.run([&](auto& workers) {
    std::array<float, 3> x{1, 0, static_cast<float>(workers.rank() % 2)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{1}, gq::rounding::stochastic{},
                           gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    mean(x, 0);
    if (workers.rank() == 0) good = good && x == std::array<float, 3>{1, 0, 0.5F};
  });
  std::puts(good ? "the mean is right" : "the mean is wrong");
  return good ? 0 : 1;
}
