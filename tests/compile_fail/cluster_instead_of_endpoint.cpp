// expect-error: pass the endpoint that run() hands out
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief transport::threads is the whole cluster; a worker holds an endpoint.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

void average(gq::transport::threads& cluster) {
  cluster.run([&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  });
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  gq::allreduce_mean mean{cluster, gq::uncompressed{}, gq::schedule::ring{}, {}};
#endif
}
