// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief What calls are made of: the order of the parts, and parts that do not go together.

#include <globalq/globalq.hpp>

namespace gq = globalq;

struct minimal {  // the least that a transport is
  struct request {};
  int rank() const { return 0; }
  int size() const { return 1; }
  request send_async(int, std::span<std::byte const>) { return {}; }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}
};

template <class Workers>
void make(Workers& workers, [[maybe_unused]] gq::transport::threads& cluster) {
  [[maybe_unused]] gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{},
                                          gq::rounding::stochastic{}, gq::wire::int8{}};
  [[maybe_unused]] gq::quantizer const of_table{gq::norm::linf{}, gq::levels::table{0, 0.5, 1},
                                                gq::rounding::stochastic{}, gq::wire::int8{}};
  [[maybe_unused]] gq::schedule::ring const ring;

  gq::allreduce_mean mean{workers, op, ring, {.seed = 42}};
  gq::reduce_scatter_mean scatter{workers, op, {.seed = 42}};
  gq::all_gather gather{workers, op, gq::schedule::hierarchical<>{2}};

#ifdef CASE_EXCHANGED  // expect-error: globalq: allreduce_mean: operator and schedule are swapped
  gq::allreduce_mean bad{workers, ring, op};
#endif
#ifdef CASE_EXCHANGED_WITH_OPTIONS  // expect-error: globalq: allreduce_mean: operator and schedule are swapped
  gq::allreduce_mean bad{workers, ring, op, {.seed = 42}};
#endif
#ifdef CASE_OPERATOR_FIRST  // expect-error: globalq: the first argument is not a transport
  gq::allreduce_mean bad{op, workers, ring};
#endif
#ifdef CASE_NO_SCHEDULE  // expect-error: globalq: allreduce_mean: the third argument is not a schedule
  gq::allreduce_mean bad{workers, op};
#endif
#ifdef CASE_OPTIONS_INSTEAD_OF_SCHEDULE  // expect-error: globalq: allreduce_mean: the third argument is not a schedule
  gq::allreduce_mean bad{workers, op, {.seed = 42}};
#endif
#ifdef CASE_NO_OPERATOR  // expect-error: globalq: the second argument is not an operator
  gq::allreduce_mean bad{workers, ring, ring};
#endif
#ifdef CASE_NUMBER_INSTEAD_OF_OPTIONS  // expect-error: globalq: these are not options
  gq::allreduce_mean bad{workers, op, ring, 42};
#endif
#ifdef CASE_NUMBER_INSTEAD_OF_OPTIONS_OF_SHARDS  // expect-error: globalq: these are not options
  gq::all_gather bad{workers, op, 42};
#endif
#ifdef CASE_NUMBER_INSTEAD_OF_OPTIONS_OF_NODES  // expect-error: globalq: these are not options
  gq::reduce_scatter_mean bad{workers, op, gq::schedule::hierarchical<>{2}, 42};
#endif
#ifdef CASE_NO_SPACE  // expect-error: globalq: the last argument is not a Kokkos execution space
  gq::allreduce_mean bad{workers, op, ring, {}, 8};
#endif
#ifdef CASE_TEMPORARY_TRANSPORT  // expect-error: globalq: the transport is a temporary
  gq::allreduce_mean bad{minimal{}, op, ring};
#endif
// transport::threads is the whole cluster; a worker holds an endpoint
#ifdef CASE_CLUSTER_INSTEAD_OF_ENDPOINT  // expect-error: globalq: the first argument is not a transport
  gq::allreduce_mean bad{cluster, op, ring};
#endif
// shards take nodes, and no other schedule
#ifdef CASE_SHARDS_BY_ANOTHER_SCHEDULE  // expect-error: globalq: shards have a fixed schedule except for nodes
  gq::all_gather bad{workers, op, ring};
#endif
#ifdef CASE_NATIVE_WITH_A_TABLE  // expect-error: globalq: schedule::native adds integers inside the transport
  gq::allreduce_mean bad{workers, of_table, gq::schedule::native{}};
#endif
}
template void make(gq::transport::threads::endpoint&, gq::transport::threads&);

// A transport without allreduce_sum serves all other schedules.
void average(minimal& workers) {
  gq::allreduce_mean good{workers, gq::uncompressed{}, gq::schedule::ring{}};
#ifdef CASE_NATIVE_NEEDS_OWN_SUMS  // expect-error: globalq: schedule::native needs a transport that adds integers itself
  gq::allreduce_mean bad{workers, gq::uncompressed{}, gq::schedule::native{}};
#endif
}
