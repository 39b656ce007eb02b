// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: all workers receive the quantized vector of one worker, for weights that one worker has updated.

#include "../schedule/detail/spread.hpp"
#include "detail/collective.hpp"

namespace GLOBALQ_ABI {

/// @brief Copies the vector of one worker, the root, to all; afterwards all workers hold the same bits.
///
/// The vector is encoded once, and the root stores the decoded values too, so that replicas do not drift apart; to keep the
/// exact values, let it pass an input and an output. Norms are those of the root's vector, or of its buckets. The vectors of
/// other workers are only written.
///
/// @code
/// gq::broadcast send{workers, op, 0, {.seed = 42}};
/// send(weights, step);                                // in place, on every worker
/// @endcode
/// @throws configuration_error at construction, before any communication, if the parts do not fit together or there is no
///         such root
/// @complexity bytes sent: S by the root, S (n-2)/(n-1) by each other worker, with S the bytes of the encoded vector
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
/// @tparam Place  where vectors are: Kokkos::HostSpace, or the execution space of a stream transport; deduced
template <class Place = Kokkos::HostSpace>
class broadcast : public detail::collective<Place> {
  using base = detail::collective<Place>;

 public:
  /// @param workers   this worker's endpoint, for example of transport::threads or transport::mpi; kept by reference
  /// @param op        quantizer, floats, any_quantizer, or these with stages or float32_tail
  /// @param root      rank of the worker that has the vector; the same on all workers
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  broadcast(Transport&& workers, Operator const& op, int root, Options const& settings = {},
            Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::spread(root), settings, space) {}

  using base::operator();
  using base::start;

  /// @brief Sends the root's @p n values at the pointer @p x to those at the pointer @p y of all workers.
  template <class X, class Y, class N, class Step>
  void operator()(X&& x, Y&& y, N const& n, Step const& step) {
    this->run(this->at_pointers(x, y, n), base::step_of(step));
  }
  /// @brief Starts the same call.
  template <class X, class Y, class N, class Step>
  started_call start(X&& x, Y&& y, N const& n, Step const& step) {
    return this->start_job(this->at_pointers(x, y, n), base::step_of(step).value);
  }
};

template <class T, class Op, class O = options, class K = detail::transports_space>
broadcast(T&&, Op const&, int, O const& = {}, K const& = {})
    -> broadcast<transport::place_of<std::remove_reference_t<T>>>;

}  // namespace GLOBALQ_ABI
