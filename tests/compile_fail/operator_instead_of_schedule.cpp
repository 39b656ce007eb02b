// expect-error: globalq: allreduce_mean: the third argument is no schedule
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The order of the arguments: transport, operator, schedule.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

struct no_schedule {};
void average(gq::transport::threads::endpoint& workers) {
  gq::allreduce_mean good{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  gq::allreduce_mean bad{workers, gq::uncompressed{}, no_schedule{}, {}};
#endif
}
