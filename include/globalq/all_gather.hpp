// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief all_gather: every worker gets the shards of all, quantised: weights of a sharded trainer.

#include "detail/collective.hpp"
#include "schedule/detail/shards.hpp"

namespace globalq {

/// @brief Puts the shards of all workers side by side; every worker holds the same bits afterwards.
///
/// Worker r brings values shard(length, r). A shard is encoded once, and its owner too gets what the others decode, so
/// that replicas do not drift apart: keep the exact weights elsewhere if they are needed. Norms are those of the vector
/// that comes out, or of its buckets: each has one owner. (Where norm::l<q, p> has another p than q and no buckets, the
/// norms q of the shards are combined by p.)
///
/// @code
/// gq::all_gather gather{workers, op, {.seed = 42}};
/// gather(weights, step);                                 // in place: the own shard of weights is read
/// @endcode
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
/// @source Markov 2024 (thesis), chapter 5 (QSDP): quantised weights before each AllGather
template <class Transport, class Operator>
class all_gather : public detail::collective<Transport, Operator, schedule::detail::gather> {
  using base = detail::collective<Transport, Operator, schedule::detail::gather>;

 public:
  /// @param workers  this worker's endpoint; kept by reference
  /// @pre Kokkos is initialised
  all_gather(Transport& workers, Operator op, options const& settings = {})
      : base(workers, std::move(op), {}, settings, static_cast<std::nullptr_t const*>(nullptr)) {}
  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> all_gather(Transport& workers, Operator op,
                                                          options const& settings, Space const& space)
      : base(workers, std::move(op), {}, settings, &space) {}

  /// The values that worker @p rank brings: nearly equal shares, cut at multiples of 256 values and of the bucket; the
  /// last ones may be empty. The same as those of reduce_scatter_mean with the same bucket.
  segment shard(std::uint64_t length, int rank) const { return base::part_of(length, rank); }
  segment shard(std::uint64_t length) const { return shard(length, this->workers_.rank()); }

  /// Gathers in place: the own shard of @p x is read, all of x is written.
  /// @param x     a vector of the same length and type on all workers
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once
  /// @throws disagreement_error when workers disagree, non_finite_error if so configured, transport_error
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    this->run(this->in_place(x), this->checked(step));
  }

  /// Gathers the shards @p x into @p y. The shard may be the one inside y, but not overlap otherwise.
  /// @shape x: shard(size of y).count
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    this->run(this->from_shard(x, y), this->checked(step));
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
    return this->start_job(this->from_shard(x, y), step);
  }

  /// The same on a stream, with the number of the call where the stream finds it, which counts it up.
  template <Vector V, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(V&& x, Step const& step) {
    this->run(this->in_place(x), base::step_at(step));
  }
  template <Vector X, Vector Y, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(X&& x, Y&& y,
                                                                                    Step const& step) {
    this->run(this->from_shard(x, y), base::step_at(step));
  }
};

template <class T, class Op>
all_gather(T&, Op) -> all_gather<T, Op>;
template <class T, class Op>
all_gather(T&, Op, options) -> all_gather<T, Op>;
template <class T, class Op, class Space>
all_gather(T&, Op, options, Space) -> all_gather<T, Op>;

}  // namespace globalq
