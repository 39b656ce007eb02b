// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: every worker gets the shards of all, quantized: weights of a sharded trainer.

#include "../schedule/detail/shards.hpp"
#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Puts the shards of all workers side by side; every worker holds the same bits afterwards.
///
/// Worker r brings values shard(length, r). A shard is encoded once, and its owner too gets what the others decode, so
/// that replicas do not drift apart: keep the exact weights elsewhere if they are needed. Norms are those of the vector
/// that comes out, or of its buckets: each has one owner. (Where norm::l<q, p> has another p than q and no buckets, the
/// norms q of the shards are combined by p.)
///
/// Workers may form nodes, as with schedule::hierarchical: a shard then goes to each other node once, and is passed on
/// there; between nodes of g workers go 1/g of the bytes. No bit of the result depends on nodes.
///
/// @code
/// gq::all_gather gather{workers, op, {.seed = 42}};
/// gather(weights, step);                                 // in place: the own shard of weights is read
///
/// gq::all_gather by_nodes{workers, op, gq::schedule::hierarchical<>{8}, {.seed = 42}};
/// @endcode
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
/// @source Markov 2024 (thesis), chapter 5 (QSDP): quantized weights before each AllGather
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a transport of a stream; deduced
template <class Place = Kokkos::HostSpace>
class all_gather : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers  this worker's endpoint, of transport::threads, mpi or your own, say; kept by reference
  /// @param op        quantizer, uncompressed, any_quantizer, centered or float32_tail
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  requires(!Schedule<Options>) all_gather(Transport&& workers, Operator const& op,
                                          Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::gather(), settings, space) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  /// @throws configuration_error also when the nodes have another number of workers together
  template <class Transport, class Operator, Schedule Nodes, class Options = options,
            class Space = detail::transports_space>
  all_gather(Transport&& workers, Operator const& op, Nodes const& nodes, Options const& settings = {},
             Space const& space = {})
      : base(std::forward<Transport>(workers), op,
             schedule::detail::gather(schedule::detail::nodes_of_shards(nodes)), settings, space) {}

  /// @brief The part of a vector that worker @p rank brings.
  ///
  /// Nearly equal shares, cut at multiples of 256 values and of the bucket; the last ones may be empty. reduce_scatter_mean and
  /// all_gather have the same with the same bucket.
  /// @throws configuration_error when there is no such worker, or length is above 2^48
  segment shard(std::uint64_t length, int rank) const { return this->shard_of(length, rank); }
  /// That of this worker.
  segment shard(std::uint64_t length) const { return shard(length, this->workers().rank()); }
};

template <class T, class Op, class O = options, class K = detail::transports_space>
requires(!Schedule<O>) all_gather(T&&, Op const&, O const& = {}, K const& = {})
->all_gather<transport::place_of<std::remove_reference_t<T>>>;
template <class T, class Op, Schedule Nodes, class O = options, class K = detail::transports_space>
all_gather(T&&, Op const&, Nodes const&, O const& = {}, K const& = {})
    -> all_gather<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
