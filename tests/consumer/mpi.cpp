// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A program outside the project: processes average a vector whose values are levels, and share memory.

#include <globalq/globalq.hpp>
#include <globalq/transport/shared_memory.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace gq = globalq;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = false;
  {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    gq::transport::mpi workers{MPI_COMM_WORLD};
    int const n = workers.size();
    std::array<float, 2> x{1, static_cast<float>(workers.rank() % 2)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{1}, gq::rounding::stochastic{},
                           gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    mean(x, 0);
    good = x == std::array<float, 2>{1, static_cast<float>(n / 2) / static_cast<float>(n)};

    gq::transport::shared_memory neighbors{MPI_COMM_WORLD};
    std::vector<std::byte> ranks(static_cast<std::size_t>(n));
    std::byte const mine{static_cast<unsigned char>(neighbors.rank())};
    neighbors.allgather({&mine, 1}, ranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) good = good && ranks[r] == std::byte(r);
    if (workers.rank() == 0) std::printf("what %d exchange is %s\n", n, good ? "right" : "wrong");
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
