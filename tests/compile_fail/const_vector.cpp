// expect-error: globalq: the vector is const
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A mean in place needs a vector to write to.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

void average(gq::transport::threads::endpoint& workers, std::vector<float> const& x, std::vector<float>& y) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  mean(x, y, 0);
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  mean(x, 0);
#endif
}
