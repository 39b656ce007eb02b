// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: the one call: all workers agree on the mean of their vectors.

#include "any_quantizer.hpp"
#include "detail/host_call.hpp"
#include "detail/stream_call.hpp"
#include "detail/vector.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "schedule/any.hpp"

#include <optional>
#include <string_view>

namespace globalq {

/// @brief Averages vectors over the workers of a transport.
///
/// Made once on every worker with the same arguments, then called once a step. After the call every worker holds the
/// same bits. All memory is kept for the next call, which then allocates nothing.
///
/// @code
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
/// mean(gradient, step);
/// @endcode
/// @tparam Transport  transport::threads' endpoint, transport::mpi or your own
/// @tparam Operator   quantizer, any_quantizer or uncompressed
/// @tparam Schedule   schedule::ring, tree, scatter_reduce_allgather, allgather, native, hierarchical or any
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// On a transport of a stream (transport::nccl, transport::staged) a call only enqueues, the vectors are views in the
/// memory of its space, and what goes wrong is thrown by the next call or by wait().
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
template <class Transport, class Operator, class Schedule>
class allreduce_mean {
 public:
  /// @param workers   this worker's endpoint; kept by reference
  /// @pre Kokkos is initialised
  allreduce_mean(Transport& workers, Operator op, Schedule schedule, options const& settings = {})
      : allreduce_mean(workers, std::move(op), std::move(schedule), settings,
                       static_cast<std::nullptr_t const*>(nullptr)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> allreduce_mean(Transport& workers, Operator op,
                                                              Schedule schedule, options const& settings,
                                                              Space const& space)
      : allreduce_mean(workers, std::move(op), std::move(schedule), settings, &space) {}

  /// Averages in place.
  /// @param x     this worker's vector; all workers bring the same length and type
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once
  /// @throws disagreement_error when workers disagree, non_finite_error if so configured, transport_error
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    run_in_place(x, checked(step));
  }

  /// Averages in place, on a stream; the number of the call is where the stream finds it, and is counted up at its end.
  ///
  /// So a call can be captured in a graph, and every replay draws fresh random bits. The same number on every worker.
  /// @shape step: one value, in the memory of the transport's execution space
  template <Vector V, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(V&& x, Step const& step) {
    run_in_place(x, step_at(step));
  }

  /// Averages @p x into @p y, of the same length and type. They may be the same, but not overlap otherwise.
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    run_between(x, y, checked(step));
  }

  /// The same on a stream, with the number of the call where the stream finds it.
  template <Vector X, Vector Y, class Step>
  requires(transport::OnStream<Transport>&& detail::StepView<Step>) void operator()(X&& x, Y&& y,
                                                                                    Step const& step) {
    run_between(x, y, step_at(step));
  }

  /// @brief On a stream: returns when all calls have run. Elsewhere they have when they return.
  /// @throws what went wrong in a call since the last error that was thrown; transport_error
  void wait() {
    if constexpr (transport::OnStream<Transport>) call_->wait();
  }

  /// @brief On a stream: false when a call that has run went wrong, which the next call or wait() throws. Does not wait.
  bool good() const {
    if constexpr (transport::OnStream<Transport>)
      return call_->good();
    else
      return true;
  }

  /// What a call with vectors of @p length values does and costs.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return detail::make_plan(setup_.facts, magnitudes_, schedule_, workers_.size(), length, type,
                             setup_.settings.chunk_values, setup_.chunk_bytes);
  }

  /// How codes are added, how many levels there are, and how many codes are kept free for growth.
  method reduce() const { return setup_.resolved.how; }
  std::uint32_t levels() const { return setup_.resolved.size; }
  std::uint32_t headroom() const { return setup_.resolved.headroom; }

 private:
  static constexpr bool on_stream = transport::OnStream<Transport>;
  using memory = typename detail::vectors_of<Transport>::space;
  using engine = std::conditional_t<on_stream, detail::stream_call<Transport>, detail::host_call<Transport>>;

  template <class V>
  void run_in_place(V& x, detail::call_step step) {
    auto* const data = detail::data_of<memory>(x);
    static_assert(
        !std::is_const_v<std::remove_pointer_t<decltype(data)>>,
        "globalq: allreduce_mean: the vector is const; pass one to write to: mean(input, output, step)");
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(data)>>>::value;
    run({data, type}, {data, type}, detail::size_of_vector(x), step);
  }

  template <class X, class Y>
  void run_between(X& x, Y& y, detail::call_step step) {
    auto* const in = detail::data_of<memory>(x);
    auto* const out = detail::data_of<memory>(y);
    using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                  "globalq: allreduce_mean: input and output have different types; use one type for both");
    if (detail::size_of_vector(x) != detail::size_of_vector(y))
      throw configuration_error(
          message("the input has " + std::to_string(detail::size_of_vector(x)) + " values and the output " +
                  std::to_string(detail::size_of_vector(y)) + "; they must have the same length"));
    run({in, dtype_of<value>::value}, {out, dtype_of<value>::value}, detail::size_of_vector(x), step);
  }

  template <class Step>
  static detail::call_step step_at(Step const& step) {
    static_assert(
        detail::reaches<Step, memory>,
        "globalq: allreduce_mean: the step is in memory that the stream does not reach; use a view of the "
        "transport's execution space");
    if (step.size() != 1)
      throw configuration_error("globalq: allreduce_mean: the step is a view of " +
                                std::to_string(step.size()) + " values; pass one of a single value");
    return {0, step.data()};
  }

  detail::call_step checked(std::uint64_t step) const {
    if (step > random::max_step)
      throw configuration_error(message("step " + std::to_string(step) +
                                        " is above 2^48 - 1; count steps from 0 and "
                                        "change the seed instead"));
    return {step, nullptr};
  }

  template <class Space>
  allreduce_mean(Transport& workers, Operator op, Schedule schedule, options const& settings,
                 Space const* space)
      : workers_(workers), schedule_(std::move(schedule)), magnitudes_(detail::magnitudes(op)) {
    static_assert(
        globalq::Transport<Transport>,
        "globalq: allreduce_mean: the first argument is no transport: it needs rank, size, send_async, "
        "recv_async "
        "and wait (transport/concept.hpp); for transport::threads pass the endpoint that run() hands out");
    static_assert(
        on_stream || !requires { Transport::on_stream; },
        "globalq: allreduce_mean: this transport moves memory of a GPU, and Kokkos was built without it; "
        "use a Kokkos with CUDA (scripts/bootstrap cuda builds one)");
    static_assert(globalq::Schedule<Schedule>,
                  "globalq: allreduce_mean: the third argument is no schedule; use "
                  "schedule::ring, tree, scatter_reduce_allgather, allgather or native");
    if (!Kokkos::is_initialized())
      throw configuration_error(
          message("Kokkos is not initialised; create a Kokkos::ScopeGuard in main before the first "
                  "call of globalq"));
    setup_.settings = settings;
    setup_.facts = detail::facts_of(op);
    setup_.resolved = detail::resolve(setup_.facts, schedule_.facts(workers_.size()), workers_.size());
    if (!setup_.resolved.fits()) throw configuration_error(setup_.resolved.refusal);
    if constexpr (on_stream) {
      if (!engine::host_driven && settings.chunk_values != 0 && workers_.size() > 1 &&
          std::string_view(schedule_.facts(workers_.size()).name) == schedule::tree::name)
        throw configuration_error(
            message("chunk_values is " + std::to_string(settings.chunk_values) +
                    ", and on a stream workers of a tree would wait for each other's chunks for ever; leave "
                    "chunk_values at 0, or use another schedule"));
    }
    setup_.operator_hash =
        detail::hash(detail::hash(detail::parameter_hash(op), setup_.facts.name), setup_.resolved.size);
    if constexpr (transport::OwnChunkBytes<Transport>) setup_.chunk_bytes = workers_.chunk_bytes();
    call_.emplace(workers_, op, setup_, make_executor(space));
  }

  template <class Space>
  auto make_executor([[maybe_unused]] Space const* space) {
    if constexpr (on_stream) {
      static_assert(
          std::is_same_v<Space, std::nullptr_t>,
          "globalq: allreduce_mean: this transport has a stream of its own; give the space to the transport");
      return workers_.execution();
    } else if constexpr (!std::is_same_v<Space, std::nullptr_t>) {
      return kernel::host_executor(*space);
    } else if constexpr (transport::OwnExecution<Transport>) {
      return kernel::host_executor(workers_.execution());
    } else {
      return kernel::host_executor(Kokkos::DefaultHostExecutionSpace());
    }
  }

  std::string message(std::string const& what) const {
    return "globalq: allreduce_mean: rank " + std::to_string(workers_.rank()) + " of " +
           std::to_string(workers_.size()) + ": " + what;
  }

  void run(const_vector x, mutable_vector y, std::uint64_t length, detail::call_step step) {
    if (length > random::max_length)
      throw configuration_error(
          message(std::to_string(length) + " values are more than 2^48; average in parts"));
    if constexpr (on_stream)
      call_->run(schedule_, x, y, length, step);
    else
      call_->run(schedule_, x, y, length, step.value);
  }

  Transport& workers_;
  Schedule schedule_;
  detail::call_setup setup_;
  std::vector<double> magnitudes_;
  std::optional<engine> call_;
};

template <class T, class Op, class S>
allreduce_mean(T&, Op, S) -> allreduce_mean<T, Op, S>;
template <class T, class Op, class S>
allreduce_mean(T&, Op, S, options) -> allreduce_mean<T, Op, S>;
template <class T, class Op, class S, class Space>
allreduce_mean(T&, Op, S, options, Space) -> allreduce_mean<T, Op, S>;

}  // namespace globalq
