// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Calls over transport::threads that many suites make: compiled once, like the compositions they average with.

#include "tests/support/compositions.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/schedule/detail/shards.hpp>
#include <globalq/transport/threads.hpp>

// instantiate(schedule) is called for each schedule.
#define GLOBALQ_TEST_SCHEDULES(instantiate)        \
  instantiate(schedule::any);                      \
  instantiate(schedule::ring);                     \
  instantiate(schedule::scatter_reduce_allgather); \
  instantiate(schedule::allgather);                \
  instantiate(schedule::detail::reduce_scatter);   \
  instantiate(schedule::detail::gather)

#define GLOBALQ_TEST_CALL(schedule)                                                                  \
  template void detail::host_call::run(schedule const&, const_vector, mutable_vector, std::uint64_t, \
                                       std::uint64_t)
#define GLOBALQ_TEST_GROUP_CALL(schedule)                                                            \
  template void detail::host_call::run_group(schedule const&, std::span<vector_group::member const>, \
                                             detail::group_operators const&, std::uint64_t)
#define GLOBALQ_TEST_PLAN(schedule)                                                                          \
  template plan detail::make_plan(detail::operator_facts const&, schedule const&, int, std::uint64_t, dtype, \
                                  std::uint64_t, std::size_t)

#if defined(GLOBALQ_TEST_COMPOSITIONS)
#define GLOBALQ_TEST_EXTERN_CALL(schedule) extern GLOBALQ_TEST_CALL(schedule)
namespace globalq {
GLOBALQ_TEST_SCHEDULES(GLOBALQ_TEST_EXTERN_CALL);
extern GLOBALQ_TEST_GROUP_CALL(schedule::any);
extern GLOBALQ_TEST_PLAN(schedule::any);
}  // namespace globalq
#endif
