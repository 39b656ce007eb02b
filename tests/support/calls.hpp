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

#define GLOBALQ_TEST_CALL(of) template class globalq::schedule::erased_as<of>

#if defined(GLOBALQ_TEST_COMPOSITIONS)
#define GLOBALQ_TEST_EXTERN_CALL(of) extern GLOBALQ_TEST_CALL(of)
namespace globalq {
GLOBALQ_TEST_SCHEDULES(GLOBALQ_TEST_EXTERN_CALL);
}  // namespace globalq
#endif
