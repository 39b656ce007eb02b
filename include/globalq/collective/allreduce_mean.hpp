// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: averages vectors; every worker receives the whole mean.

#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Averages vectors over the workers of a transport.
///
/// Construct it on every worker with the same arguments, then call it once per step. After a call all workers hold the
/// same bits. Memory is kept between calls, so repeated calls allocate nothing.
///
/// @code
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
/// mean(gradient, step);
/// @endcode
/// Over a stream transport (transport::nccl, transport::staged) a call only enqueues work, vectors are in memory of its
/// execution space, and the next call or wait() throws errors.
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a stream transport; deduced
/// @throws configuration_error at construction, before any communication, if the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
template <class Place = Kokkos::HostSpace>
class allreduce_mean : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers   this worker's endpoint, for example of transport::threads or transport::mpi; kept by reference
  /// @param op        quantizer, floats, any_quantizer, or these with stages or float32_tail
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  /// @param schedule  schedule::ring, tree, sra (scatter_reduce_allgather), allgather, native, hierarchical, any or
  ///                  your own
  /// @param settings  globalq::options: {.seed = 42}
  template <class Transport, class Operator, class Schedule = options, class Options = options,
            class Space = detail::transports_space>
  allreduce_mean(Transport&& workers, Operator const& op, Schedule schedule = {},
                 Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, std::move(schedule), settings, space) {}

  using base::operator();
  using base::start;

  /// @brief Averages the @p n values at the pointer @p x into those at the pointer @p y, otherwise as the call with two
  /// vectors. On a stream both point to memory that its space can access.
  template <class X, class Y, class N, class Step>
  void operator()(X&& x, Y&& y, N const& n, Step const& step) {
    this->run(this->at_pointers(x, y, n), base::step_of(step));
  }
  /// @brief Starts the same call, as start() with two vectors does.
  template <class X, class Y, class N, class Step>
  started_call start(X&& x, Y&& y, N const& n, Step const& step) {
    return this->start_job(this->at_pointers(x, y, n), base::step_of(step).value);
  }

  /// @brief Averages all vectors of a group in one call: they share the handshake, the exchange of norms and the
  /// messages of the schedule.
  ///
  /// Each vector has its own norm, and no bucket spans two vectors. Vector k draws the random bits of step + k, so the
  /// next unused step is step + group.size(). Over allgather, and where codes are added as integers, results equal
  /// those of single calls with these steps, if norms are norms of buckets or maxima. Elsewhere workers add in another
  /// order, and only the distribution is the same. The random bits of a vector do not depend on the other vectors. Two
  /// properties of its result may: the sign of a zero in a vector of zeros, and the scale of a quantized float64 vector
  /// if one of them has values above 2^900 (scales are then in units of 2^128). Vectors may have different types.
  /// @param group  the same lengths and types in the same order on all workers
  /// @throws configuration_error over schedule::native
  template <class Step = detail::missing_step>
  void operator()(vector_group const& group, Step const& step = {}) {
    this->run(group, base::step_of(step).value);
  }

  /// Steps, bytes and variance bound of a call with vectors of @p length values.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return this->plan_of(length, type);
  }
};

template <class T, class Op, class S = options, class O = options, class K = detail::transports_space>
allreduce_mean(T&&, Op const&, S = {}, O const& = {}, K const& = {})
    -> allreduce_mean<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
