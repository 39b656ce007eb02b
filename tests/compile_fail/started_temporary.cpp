// expect-error: globalq: the vector is a temporary
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A call that is started outlives a vector without a name; views of vectors pass.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <span>
#include <vector>

namespace gq = globalq;

void average(gq::transport::threads::endpoint& workers, std::vector<float>& x) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  mean.start(x, 0);
  mean.start(std::span(x).first(1), 1);
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  mean.start(std::vector<float>(3), x, 2);
#endif
  mean.wait();
}
