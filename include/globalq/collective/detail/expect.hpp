// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: compile-time error messages for wrong arguments.
///
/// Constructors and calls are not constrained, and their deduction guides accept wrong arguments too. Otherwise a
/// compiler would report "deduction failed" or "no matching function" and list candidates. These are classes because
/// g++ reports errors in a function body only after the errors of its callers.

#include "../../call/options.hpp"
#include "../../call/vector_group.hpp"
#include "../../operator/any_quantizer.hpp"
#include "../../schedule/detail/expect_schedule.hpp"
#include "../../schedule/native.hpp"
#include "../../transport/detail/expect_transport.hpp"

#include <type_traits>

namespace GLOBALQ_ABI::detail {

/// Placeholder for an execution space: the transport chooses.
struct transports_space {};
template <class S>
concept KernelSpace = std::is_same_v<S, transports_space> || Kokkos::is_execution_space_v<S>;

template <class V>
concept VectorGroup = std::is_base_of_v<vector_group, std::remove_cvref_t<V>>;

/// Whether codes of an operator may be added as integers, as far as its type shows.
template <class O>
inline constexpr bool codes_may_add = true;
template <class N, class L, class R, class W, class Op>
inline constexpr bool codes_may_add<quantizer<N, L, R, W, Op>> = adds_as_integers<L>();

/// Refuses invalid parts of a call and parts that never fit together.
/// @tparam Transport  including its reference qualifier
template <class Place, class Transport, class Operator, class Schedule, class Options, class Space>
struct expect_parts {
  using workers = std::remove_reference_t<Transport>;
  static constexpr bool on_stream = !std::is_same_v<Place, Kokkos::HostSpace>;
  static constexpr bool native = std::is_same_v<Schedule, globalq::schedule::native>;
  static_assert(!(globalq::Schedule<Operator> && detail::Operator<Schedule>),
                "globalq: allreduce_mean: operator and schedule are swapped; the order is workers, operator, "
                "schedule, options");
  static_assert(
      transport::detail::meant_as_transport<workers>,
      "globalq: the first argument is not a transport; it needs rank, size, send_async, recv_async and wait "
      "(transport/concept.hpp); for transport::threads pass the endpoint that run() passes to its function");
  static_assert(sizeof(transport::detail::expect_transport<workers>) != 0);
  static_assert(
      std::is_lvalue_reference_v<Transport>,
      "globalq: the transport is a temporary, which is destroyed before the first call; give it a name");
  static_assert(detail::Operator<Operator>,
                "globalq: the second argument is not an operator; use a quantizer, floats, any_quantizer, "
                "centered or float32_tail");
  static_assert(
      on_stream || !requires { workers::on_stream; },
      "globalq: this transport moves GPU memory, but Kokkos was built without CUDA; "
      "use a Kokkos with CUDA (scripts/bootstrap cuda builds one)");
  static_assert(schedule::detail::meant_as_schedule<Schedule>,
                "globalq: allreduce_mean: the third argument is not a schedule; use schedule::ring, tree, "
                "sra, allgather, native or hierarchical. The order is workers, operator, schedule, options");
  static_assert(sizeof(schedule::detail::expect_schedule<Schedule>) != 0);
  static_assert(std::is_convertible_v<Options const&, options>,
                "globalq: these are not options; pass them by name, {.seed = 42} for instance, or as a "
                "globalq::options, after the operator and the schedule if any");
  static_assert(
      KernelSpace<Space>,
      "globalq: the last argument is not a Kokkos execution space; leave it out, or pass an instance "
      "such as Kokkos::OpenMP{}");
  static_assert(
      !on_stream || !SumsInNodes<Schedule>,
      "globalq: schedule::float32_sum adds in host memory; on a stream use schedule::star in nodes");
  static_assert(
      !native || codes_may_add<Operator>,
      "globalq: schedule::native adds integers inside the transport, and only codes of evenly spaced "
      "levels are integers to add. Use levels::uniform, or schedule::ring, tree, sra or allgather; "
      "see docs/composing.md");
  static_assert(!native || transport::AddsSummands<workers>,
                "globalq: schedule::native needs a transport that adds integers itself (allreduce_sum). Use "
                "schedule::ring, tree, sra or allgather with this transport");
};

/// Default argument if the step is missing.
struct missing_step {};

template <class Step>
struct expect_step {
  static_assert(
      std::is_convertible_v<Step const&, std::uint64_t> && !std::is_floating_point_v<Step>,
      "globalq: the step is missing. The last argument is the number of the call, which selects the "
      "random bits: mean(vector, step), mean(input, output, step), mean(pointer, n, step) or "
      "mean(pointer, pointer, n, step); count from 0, and use each number once");
};

}  // namespace GLOBALQ_ABI::detail
