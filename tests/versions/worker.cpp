// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One worker of two, which averages a vector by globalq as it was compiled here; compiled from headers of two
///        format versions.
///
/// usage: worker NAME RANK; prints "mean VALUE", or "disagreement: " with the message and whether the vector is unchanged

#include <globalq/globalq.hpp>
#include <globalq/transport/named_memory.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gq = globalq;

int main(int, char** arguments) {
  Kokkos::ScopeGuard const kokkos;
  int const rank = std::atoi(arguments[2]);
  std::vector<float> const before(100, static_cast<float>(rank));
  std::vector<float> gradient = before;
  try {
    gq::transport::named_memory workers{arguments[1], rank, 2, {.deadline = std::chrono::seconds{20}}};
    gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}};
    mean(gradient, 0);
    std::printf("mean %g\n", gradient[0]);
  } catch (gq::disagreement_error const& e) {
    std::printf("disagreement, the vector is %s: %s\n", gradient == before ? "unchanged" : "changed",
                e.what());
  } catch (std::exception const& e) {
    std::printf("another error: %s\n", e.what());
  }
}
