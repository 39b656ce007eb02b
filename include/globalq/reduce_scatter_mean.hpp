// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief reduce_scatter_mean: every worker gets its shard of the mean: gradients of a sharded trainer.

#include "detail/collective.hpp"
#include "schedule/detail/shards.hpp"

namespace globalq {

/// @brief Averages vectors over the workers of a transport; worker r gets values shard(length, r) of the mean.
///
/// Each worker encodes the shards of all others, and adds the frames of its own in rank order: the bits of an
/// allreduce_mean over schedule::allgather, for (n-1)/n of a frame sent. One rounding, no headroom.
///
/// @code
/// gq::reduce_scatter_mean mean{workers, op, {.seed = 42}};
/// mean(gradient, step);                                  // in place: the other shards keep what they held
/// @endcode
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  independent of threads, execution space and chunks
/// A result beyond the range of its type is known to the worker whose shard it is in, and to no other.
template <class Transport, class Operator>
class reduce_scatter_mean : public detail::collective<Transport, Operator, schedule::detail::reduce_scatter> {
  using base = detail::collective<Transport, Operator, schedule::detail::reduce_scatter>;

 public:
  /// @param workers  this worker's endpoint; kept by reference
  /// @pre Kokkos is initialised
  reduce_scatter_mean(Transport& workers, Operator op, options const& settings = {})
      : base(workers, std::move(op), {}, settings, static_cast<std::nullptr_t const*>(nullptr)) {}
  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> reduce_scatter_mean(Transport& workers, Operator op,
                                                                   options const& settings,
                                                                   Space const& space)
      : base(workers, std::move(op), {}, settings, &space) {}
};

template <class T, class Op>
reduce_scatter_mean(T&, Op) -> reduce_scatter_mean<T, Op>;
template <class T, class Op>
reduce_scatter_mean(T&, Op, options) -> reduce_scatter_mean<T, Op>;
template <class T, class Op, class Space>
reduce_scatter_mean(T&, Op, options, Space) -> reduce_scatter_mean<T, Op>;

}  // namespace globalq
