// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: every worker gets its shard of the mean: gradients of a sharded trainer.

#include "../schedule/detail/shards.hpp"
#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Averages vectors over the workers of a transport; worker r gets values shard(length, r) of the mean.
///
/// Each worker encodes the shards of all others, and adds the frames of its own in rank order: the bits of an
/// allreduce_mean over schedule::allgather, for (n-1)/n of a frame sent. One rounding, no headroom.
///
/// Workers may form nodes, as with schedule::hierarchical: each node sends its sum of a shard to the shard's owner, so
/// between nodes of g workers go 1/g of the bytes. Sums are added as the operator's reduce says, with room for the workers
/// of the largest node; requantized ones are a second rounding. Shards are the same, and so are all bits where codes
/// are added as integers, no shifts are drawn, and the levels are as many. All workers in one node, or each
/// alone, is the same as no nodes.
///
/// @code
/// gq::reduce_scatter_mean mean{workers, op, {.seed = 42}};
/// mean(gradient, step);                                  // in place: the other shards keep what they held
///
/// gq::reduce_scatter_mean by_nodes{workers, op, gq::schedule::hierarchical<>{8}, {.seed = 42}};
/// @endcode
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  independent of threads, execution space and chunks
/// A result beyond the range of its type is known to the worker whose shard it is in, and to no other.
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a transport of a stream; deduced
template <class Place = Kokkos::HostSpace>
class reduce_scatter_mean : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers  this worker's endpoint, of transport::threads, mpi or your own, say; kept by reference
  /// @param op        quantizer, uncompressed, any_quantizer, centered or float32_tail
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  requires(!Schedule<Options>) reduce_scatter_mean(Transport&& workers, Operator const& op,
                                                   Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::reduce_scatter(), settings, space) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  /// @throws configuration_error also when the nodes have another number of workers together
  template <class Transport, class Operator, Schedule Nodes, class Options = options,
            class Space = detail::transports_space>
  reduce_scatter_mean(Transport&& workers, Operator const& op, Nodes const& nodes,
                      Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op,
             schedule::detail::reduce_scatter(schedule::detail::nodes_of_shards(nodes)), settings, space) {}

  /// What a call with vectors of @p length values does and costs. theta is that of the mean whose shards workers get.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return this->plan_of(length, type);
  }

  /// @brief The part of a vector that worker @p rank gets.
  ///
  /// Nearly equal shares, cut at multiples of 256 values and of the bucket; the last ones may be empty. reduce_scatter_mean and
  /// all_gather have the same with the same bucket.
  /// @throws configuration_error when there is no such worker, or length is above 2^48
  segment shard(std::uint64_t length, int rank) const { return this->shard_of(length, rank); }
  /// That of this worker.
  segment shard(std::uint64_t length) const { return shard(length, this->workers().rank()); }
};

template <class T, class Op, class O = options, class K = detail::transports_space>
requires(!Schedule<O>) reduce_scatter_mean(T&&, Op const&, O const& = {}, K const& = {})
->reduce_scatter_mean<transport::place_of<std::remove_reference_t<T>>>;
template <class T, class Op, Schedule Nodes, class O = options, class K = detail::transports_space>
reduce_scatter_mean(T&&, Op const&, Nodes const&, O const& = {}, K const& = {})
    -> reduce_scatter_mean<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
