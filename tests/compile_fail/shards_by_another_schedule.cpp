// expect-error: globalq: how shards travel is fixed but for the nodes of workers
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Shards take nodes, and no other schedule.

#include <globalq/globalq.hpp>

namespace gq = globalq;

void average(gq::transport::threads::endpoint& workers) {
  gq::all_gather good{workers, gq::uncompressed{}, gq::schedule::hierarchical<>{2}};
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  gq::all_gather bad{workers, gq::uncompressed{}, gq::schedule::ring{}};
#endif
}
