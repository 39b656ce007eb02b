// expect-error: constraints not satisfied
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Only float32, float64, float16 and bfloat16 are averaged.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

void average(gq::transport::threads::endpoint& workers, std::vector<float>& x, std::vector<int>& y) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  mean(x, 0);
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  using call = decltype(mean);
  static_assert(gq::Vector<std::vector<float>&>);
  [](call & c, std::vector<int> & v) requires gq::Vector < std::vector<int>
  & > { c(v, 0); }
  (mean, y);
#endif
  (void)y;
}
