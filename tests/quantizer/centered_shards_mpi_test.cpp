// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Shards around midpoints, scattered and gathered, over MPI.

#include "centered_shards.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/transport/mpi.hpp>

namespace gq = globalq;

TEST(CenteredShardsMpi, are_those_of_the_centered_mean_and_gathered_ones_are_the_same_on_all_workers) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  for (auto const& [op, gap] : centered_shards::operators())
    for (std::size_t d : {0, 1, 257, 3001, 20011}) {
      shards::expect_shards_of_the_mean(workers, op, centered_shards::far_from_zero(d, workers.rank()));
      centered_shards::expect_gathered_shards(workers, op, d, gap);
    }
}

TEST(CenteredShardsMpi, over_nodes_have_the_bits_of_no_nodes_where_sums_are_exact_and_else_their_bound) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  centered_shards::expect_nodes_of_any_size(workers);
}

TEST(CenteredShardsMpi, have_the_bits_of_those_over_threads) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  constexpr std::size_t d = 3001;
  for (auto const& [op, gap] : centered_shards::operators()) {
    auto const moved = [&, &op = op](auto& over) {
      gq::reduce_scatter_mean scatter{over, op, {.seed = 3}};
      gq::all_gather gather{over, op, {.seed = 3}};
      std::vector<float> x = centered_shards::far_from_zero(d, over.rank());
      scatter(x, 1);
      gather(x, 2);
      return x;
    };
    std::vector<float> const here = moved(workers);
    support::on_threads(workers.size(), [&](auto& threads) {
      std::vector<float> const there = moved(threads);
      if (threads.rank() == workers.rank()) support::expect_same(here, there, "over threads");
    });
  }
}
