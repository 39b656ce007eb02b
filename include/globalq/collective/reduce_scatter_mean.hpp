// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: every worker receives its shard of the mean, for the gradients of a sharded trainer.

#include "../schedule/detail/shards.hpp"
#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Averages vectors over the workers of a transport; worker r receives values shard(length, r) of the mean.
///
/// Each worker encodes the shards of all others and adds the frames of its own shard in rank order. The bits are those
/// of allreduce_mean over schedule::allgather, but a worker sends only (n-1)/n of a frame. Each value is rounded once,
/// and codes need no headroom.
///
/// Workers may form nodes, as with schedule::hierarchical: each node sends its sum of a shard to the shard's owner, so
/// nodes of g workers exchange 1/g of the bytes. The reduce operator adds within a node, with headroom for the
/// largest node; requantizing rounds a second time. Nodes do not change shards. They do not change results either if
/// codes are added as integers, random_shift is not used and the number of levels is the same. A single node, and
/// nodes of one worker each, are the same as no nodes.
///
/// @code
/// gq::reduce_scatter_mean mean{workers, op, {.seed = 42}};
/// mean(gradient, step);                                  // in place: the other shards are unchanged
///
/// gq::reduce_scatter_mean by_nodes{workers, op, gq::schedule::hierarchical<>{8}, {.seed = 42}};
/// @endcode
/// If a result exceeds the range of its type, only the worker that owns the shard detects it.
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a stream transport; deduced
/// @throws configuration_error at construction, before any communication, if the parts do not fit together
/// @determinism  independent of threads, execution space and chunks
template <class Place = Kokkos::HostSpace>
class reduce_scatter_mean : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers   this worker's endpoint, for example of transport::threads or transport::mpi; kept by reference
  /// @param op        quantizer, floats, any_quantizer, or these with stages or float32_tail
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  requires(!Schedule<Options>) reduce_scatter_mean(Transport&& workers, Operator const& op,
                                                   Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::reduce_scatter(), settings, space) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  /// @throws configuration_error also if the sizes of the nodes do not add up to the number of workers
  template <class Transport, class Operator, Schedule Nodes, class Options = options,
            class Space = detail::transports_space>
  reduce_scatter_mean(Transport&& workers, Operator const& op, Nodes const& nodes,
                      Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op,
             schedule::detail::reduce_scatter(schedule::detail::nodes_of_shards(nodes)), settings, space) {}

  /// Steps, bytes and variance bound of a call with vectors of @p length values. theta is that of the whole mean.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return this->plan_of(length, type);
  }

  /// @brief The part of the mean that worker @p rank receives.
  ///
  /// Shards have nearly equal size and begin at multiples of 256 values and of the bucket; the last ones may be empty.
  /// reduce_scatter_mean and all_gather use the same shards if their buckets are equal.
  /// @throws configuration_error if there is no such worker, or length is above 2^48
  segment shard(std::uint64_t length, int rank) const { return this->shard_of(length, rank); }
  /// The shard of this worker.
  segment shard(std::uint64_t length) const { return shard(length, this->workers().rank()); }
};

template <class T, class Op, class O = options, class K = detail::transports_space>
requires(!Schedule<O>) reduce_scatter_mean(T&&, Op const&, O const& = {}, K const& = {})
->reduce_scatter_mean<transport::place_of<std::remove_reference_t<T>>>;
template <class T, class Op, Schedule Nodes, class O = options, class K = detail::transports_space>
reduce_scatter_mean(T&&, Op const&, Nodes const&, O const& = {}, K const& = {})
    -> reduce_scatter_mean<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
