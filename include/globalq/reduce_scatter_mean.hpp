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

  /// The values that worker @p rank gets: nearly equal shares, cut at multiples of 256 values and of the bucket; the last
  /// ones may be empty.
  segment shard(std::uint64_t length, int rank) const { return base::part_of(length, rank); }
  segment shard(std::uint64_t length) const { return shard(length, this->workers_.rank()); }

  /// Averages in place: the own shard of @p x becomes the mean, the rest is left as it is.
  /// @param x     this worker's vector; all workers bring the same length and type
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once
  /// @throws disagreement_error when workers disagree, non_finite_error if so configured, transport_error
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    this->run(this->in_place(x), this->checked(step));
  }

  /// Averages @p x into @p y, which holds the own shard only. It may be the shard inside x, but not overlap otherwise.
  /// @shape y: shard(size of x).count
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    this->run(this->to_shard(x, y), this->checked(step));
  }

  /// @brief Starts a call and returns: it runs on a thread of its own, after those that were started before.
  ///
  /// Until it has ended the vectors belong to it, and so does the transport: other calls over it must be started on the
  /// same queue (run_on()); a direct call of this object waits for them. What runs meanwhile changes no bit. A worker that never
  /// starts the call is an error of all others when the transport's deadline has passed.
  /// @returns  a handle with test() and wait(); errors that it is not asked for are thrown by wait() of this object
  template <Vector V>
  started_call start(V&& x, std::uint64_t step) {
    base::template expect_lasting<V>();
    return this->start_job(this->in_place(x), step);
  }
  template <Vector X, Vector Y>
  started_call start(X&& x, Y&& y, std::uint64_t step) {
    base::template expect_lasting<X, Y>();
    return this->start_job(this->to_shard(x, y), step);
  }

  /// The same on a stream, with the number of the call where the stream finds it, which counts it up.
  template <Vector V, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(V&& x, Step const& step) {
    this->run(this->in_place(x), base::step_at(step));
  }
  template <Vector X, Vector Y, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(X&& x, Y&& y,
                                                                                    Step const& step) {
    this->run(this->to_shard(x, y), base::step_at(step));
  }
};

template <class T, class Op>
reduce_scatter_mean(T&, Op) -> reduce_scatter_mean<T, Op>;
template <class T, class Op>
reduce_scatter_mean(T&, Op, options) -> reduce_scatter_mean<T, Op>;
template <class T, class Op, class Space>
reduce_scatter_mean(T&, Op, options, Space) -> reduce_scatter_mean<T, Op>;

}  // namespace globalq
