// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A call before Kokkos is initialised is an error that names the remedy. A program of its own: all other tests
///        run inside a Kokkos session.

#include <globalq/globalq.hpp>

#include <cstdio>
#include <cstring>

namespace gq = globalq;

int main() {
  gq::transport::threads cluster{1};
  try {
    cluster.run([](auto& workers) {
      gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{7}, gq::rounding::stochastic{},
                             gq::wire::int8{}};
      gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}};
    });
  } catch (gq::configuration_error const& e) {
    if (std::strstr(e.what(), "Kokkos::ScopeGuard") != nullptr) return 0;
    std::fprintf(stderr, "the error does not name Kokkos::ScopeGuard: %s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "nothing was thrown\n");
  return 1;
}
