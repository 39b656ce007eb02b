// expect-error: globalq: input and output have different types
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Nothing is converted unseen.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

void average(gq::transport::threads::endpoint& workers, std::vector<float>& x, std::vector<float>& y,
             std::vector<double>& z) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  mean(x, y, 0);
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  mean(x, z, 0);
#endif
  (void)z;
}
