// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The smallest use: four workers in one process average their vectors at 8 bits a value.

//! [first-mean]
#include <globalq/globalq.hpp>

#include <iostream>
#include <vector>

namespace gq = globalq;

int main() {
  Kokkos::ScopeGuard const kokkos;
  gq::transport::threads cluster{4};
  cluster.run([](auto& workers) {
    std::vector<float> gradient(1000, static_cast<float>(workers.rank()));

    gq::quantizer op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
    mean(gradient, /*step=*/0);  // in place; identical bits on every worker

    if (workers.rank() == 0)
      std::cout << "about 1.5: " << gradient[0] << ", sent " << mean.plan(gradient.size()).bytes_sent
                << " bytes\n";
  });
}
//! [first-mean]
