// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: every worker receives the quantized shards of all workers, for the weights of a sharded trainer.

#include "../schedule/detail/shards.hpp"
#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Concatenates the shards of all workers; afterwards all workers hold the same bits.
///
/// Worker r contributes values shard(length, r). A shard is encoded once, and its owner stores the decoded values too,
/// so that replicas do not drift apart; keep the exact weights elsewhere if you need them. Norms are those of the whole
/// vector, or of its buckets, each of which has one owner. (For norm::l<q, p> with p other than q and without buckets,
/// the q-norms of the shards are combined by p.)
///
/// Workers may form nodes, as with schedule::hierarchical: each other node receives a shard once and relays it to its
/// workers, so nodes of g workers exchange 1/g of the bytes. The result does not depend on nodes.
///
/// @code
/// gq::all_gather gather{workers, op, {.seed = 42}};
/// gather(weights, step);                                 // in place: reads this worker's shard of weights
///
/// gq::all_gather by_nodes{workers, op, gq::schedule::hierarchical<>{8}, {.seed = 42}};
/// @endcode
/// @throws configuration_error at construction, before any communication, if the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
/// @source Markov 2024 (thesis), chapter 5 (QSDP): quantized weights before each AllGather
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a stream transport; deduced
template <class Place = Kokkos::HostSpace>
class all_gather : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers   this worker's endpoint, for example of transport::threads or transport::mpi; kept by reference
  /// @param op        quantizer, floats, any_quantizer, or these with stages or float32_tail
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  requires(!Schedule<Options>) all_gather(Transport&& workers, Operator const& op,
                                          Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::gather(), settings, space) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  /// @throws configuration_error also if the sizes of the nodes do not add up to the number of workers
  template <class Transport, class Operator, Schedule Nodes, class Options = options,
            class Space = detail::transports_space>
  all_gather(Transport&& workers, Operator const& op, Nodes const& nodes, Options const& settings = {},
             Space const& space = {})
      : base(std::forward<Transport>(workers), op,
             schedule::detail::gather(schedule::detail::nodes_of_shards(nodes)), settings, space) {}

  /// @brief The part of a vector that worker @p rank contributes.
  ///
  /// Shards have nearly equal size and begin at multiples of 256 values and of the bucket; the last ones may be empty.
  /// reduce_scatter_mean and all_gather use the same shards if their buckets are equal.
  /// @throws configuration_error if there is no such worker, or length is above 2^48
  segment shard(std::uint64_t length, int rank) const { return this->shard_of(length, rank); }
  /// The shard of this worker.
  segment shard(std::uint64_t length) const { return shard(length, this->workers().rank()); }
};

template <class T, class Op, class O = options, class K = detail::transports_space>
requires(!Schedule<O>) all_gather(T&&, Op const&, O const& = {}, K const& = {})
->all_gather<transport::place_of<std::remove_reference_t<T>>>;
template <class T, class Op, Schedule Nodes, class O = options, class K = detail::transports_space>
all_gather(T&&, Op const&, Nodes const&, O const& = {}, K const& = {})
    -> all_gather<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
