// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Shards of the mean, and shards gathered, over MPI.

#include "shards.hpp"

#include <globalq/transport/mpi.hpp>

namespace gq = globalq;

TEST(ShardsMpi, are_those_of_the_mean_over_allgather_and_gathered_are_the_same_on_all_workers) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  for (gq::any_quantizer const& op : shards::operators())
    for (std::size_t d :
         {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{3001}, std::size_t{100003}}) {
      shards::expect_shards_of_the_mean(workers, op, shards::values(d, workers.rank()));
      shards::expect_gathered_shards(workers, op, shards::values(d, 99));
      shards::expect_parts_of_all(workers, op, d / 7);
      shards::expect_one_vector_everywhere(workers, op, static_cast<int>(d) % workers.size(),
                                           shards::values(d, 99));
    }
  int const n = workers.size();
  if ((n & (n - 1)) == 0) shards::expect_a_mean_of_padded_vectors(workers, 5000);
}

TEST(ShardsMpi, over_nodes_are_gathered_alike_and_are_those_of_no_nodes_where_sums_are_exact) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  for (std::vector<int> const& split : support::splits(workers.size()))
    for (std::size_t d : {std::size_t{1}, std::size_t{6007}}) {
      for (gq::any_quantizer const& op : shards::exact_operators())
        shards::expect_shards_of_the_mean_over_nodes(workers, op, split, shards::values(d, workers.rank()),
                                                     true);
      for (gq::any_quantizer const& op : shards::operators()) {
        shards::expect_shards_of_the_mean_over_nodes(workers, op, split, shards::values(d, workers.rank()),
                                                     split.size() == 1);
        shards::expect_gathered_shards_over_nodes(workers, op, split, shards::values(d, 99));
      }
    }
}
