// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: every worker sends another quantized vector to each worker, for example the tokens of a mixture of experts.

#include "../schedule/detail/cross.hpp"
#include "detail/collective.hpp"

#include <vector>

namespace GLOBALQ_ABI {

/// @brief Exchanges parts: part p of worker r's vector becomes part r of worker p's. Vectors are in host memory.
///
/// A vector of n equal parts is a group of n vectors: each part has its own norm, buckets that begin with it, and random bits. A part is
/// encoded once, and every worker decodes its own part for itself too. A global norm of part p is that of the parts p of all workers.
///
/// @code
/// gq::all_to_all exchange{workers, op, {.seed = 42}};
/// exchange(tokens, step);                              // or exchange(input, output, step)
/// @endcode
/// @throws configuration_error at construction, before any communication, if the parts do not fit together
/// @complexity bytes sent: S (n-1)/n, with S the bytes of the encoded vector
/// @determinism  independent of threads, execution space and chunks
class all_to_all : private detail::collective<Kokkos::HostSpace> {
  using base = detail::collective<Kokkos::HostSpace>;

 public:
  /// @param workers   this worker's endpoint, for example of transport::threads or transport::mpi; kept by reference
  /// @param op        quantizer, floats, any_quantizer, or these with stages or float32_tail
  /// @param settings  globalq::options: {.seed = 42}
  /// @param space     execution-space instance that the kernels run on
  /// @pre Kokkos is initialized
  template <class Transport, class Operator, class Options = options, class Space = detail::transports_space>
  all_to_all(Transport&& workers, Operator const& op, Options const& settings = {}, Space const& space = {})
      : base(std::forward<Transport>(workers), op, schedule::detail::cross(), settings, space) {}

  /// @brief Exchanges parts in place.
  /// @param x     this worker's vector; n parts, of the same length and type on all workers
  /// @param step  number of the call, below 2^48 / n, the same on every worker; use each number once
  /// @shape a multiple of n values
  /// @throws disagreement_error if workers disagree or another worker refused its arguments; configuration_error if this
  ///         worker's arguments are refused; non_finite_error if so configured; transport_error
  template <class V, class Step = detail::missing_step>
  void operator()(V&& x, Step const& step = {}) {
    exchange(this->in_place(x), this->step_of(step).value);
  }
  /// @brief Exchanges parts from @p x to @p y, of one length and type, which do not overlap.
  template <class X, class Y, class Step>
  void operator()(X&& x, Y&& y, Step const& step) {
    exchange(this->given(x, y), this->step_of(step).value);
  }

  /// @brief Exchanges parts of the @p n values at the pointer @p x to those at the pointer @p y.
  template <class X, class Y, class N, class Step>
  void operator()(X&& x, Y&& y, N const& n, Step const& step) {
    exchange(this->at_pointers(x, y, n), this->step_of(step).value);
  }

  using base::forced_to_float32;
  using base::forget_residuals;
  using base::levels;
  using base::load;
  using base::save;
  using base::set_levels;

 private:
  GLOBALQ_CALLED void exchange(job const& j, std::uint64_t step) {
    std::uint64_t const n = static_cast<std::uint64_t>(this->workers().size()), each = j.length / n;
    std::string why = j.refusal;
    if (why.empty() && j.length % n != 0)
      why = detail::joined(
          {j.length, " values are not equal parts for ", n, " workers; pass a multiple of ", n});
    if (why.empty() && step > (random::max_step - (n - 1)) / n)
      why = detail::joined(
          {"step ", step, " is above 2^48 / ", n, "; count steps from 0 and change the seed instead"});
    if (why.empty()) why = detail::length_refusal(j.length);
    this->settle();
    if (!why.empty()) this->refuse(why);
    parts_.clear();
    for (std::uint64_t p = 0; p < n; ++p) parts_.push_back({at(j.x, p * each), at(j.y, p * each), each});
    this->body_->call.run(this->schedule(), parts_, false, n * step, step);
  }

  std::vector<vector_group::member> parts_;
};

}  // namespace GLOBALQ_ABI
