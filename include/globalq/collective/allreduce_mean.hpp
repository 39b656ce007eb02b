// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: the one call: all workers agree on the mean of their vectors.

#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Averages vectors over the workers of a transport.
///
/// Made once on every worker with the same arguments, then called once a step. After the call every worker holds the
/// same bits. All memory is kept for the next call, which then allocates nothing.
///
/// @code
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
/// mean(gradient, step);
/// @endcode
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a transport of a stream; deduced
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// On a transport of a stream (transport::nccl, transport::staged) a call only enqueues, the vectors are views in the
/// memory of its space, and what goes wrong is thrown by the next call or by wait().
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
template <class Place = Kokkos::HostSpace>
class allreduce_mean : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers   this worker's endpoint, of transport::threads, mpi or your own, say; kept by reference
  /// @param op        quantizer, uncompressed, any_quantizer, centered or float32_tail
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  /// @param schedule  schedule::ring, tree, sra (scatter_reduce_allgather), allgather, native, hierarchical, any or your own
  /// @param settings  globalq::options: {.seed = 42}
  template <class Transport, class Operator, class Schedule = options, class Options = options,
            class Space = detail::transports_space>
  allreduce_mean(Transport&& workers, Operator const& op, Schedule schedule = {},
                 Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, std::move(schedule), settings, space) {}

  using base::operator();

  /// @brief Averages all vectors of a group in one call: one opening exchange, one exchange of norms, and one message where
  /// single calls would send one for each vector.
  ///
  /// A norm of the whole vector is that of each vector by itself, and no bucket has values of two. Vector k draws the random bits
  /// of step + k, so the step after this call is step + group.size(). Over allgather, and where codes are added as integers,
  /// results are those of single calls with these steps under norms of buckets or maxima; elsewhere the workers add in
  /// another order, and only the distribution is the same. Vectors may be of several types. Random bits do not depend on what
  /// else is in a group. Two things do: the sign of a zero where all of a vector is zero; and quantized float64 vectors where
  /// one has values above 2^900: their scales are in units of 2^128 then.
  /// @param group  the same lengths and types in the same order on all workers
  /// @throws configuration_error over schedule::native
  template <class Step = detail::missing_step>
  void operator()(vector_group const& group, Step const& step = {}) {
    this->run(group, base::step_of(step).value);
  }

  /// What a call with vectors of @p length values does and costs.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return this->plan_of(length, type);
  }
};

template <class T, class Op, class S = options, class O = options, class K = detail::transports_space>
allreduce_mean(T&&, Op const&, S = {}, O const& = {}, K const& = {})
    -> allreduce_mean<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
