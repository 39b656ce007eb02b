// expect-error: globalq: schedule::native needs a transport that adds integers itself
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A transport without allreduce_sum serves all other schedules.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace gq = globalq;

struct minimal {  // the least that a transport is
  struct request {};
  int rank() const { return 0; }
  int size() const { return 1; }
  request send_async(int, std::span<std::byte const>) { return {}; }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}
};
void average(minimal& workers, std::vector<float>& x) {
  gq::allreduce_mean good{workers, gq::uncompressed{}, gq::schedule::ring{}, {}};
  good(x, 0);
#ifndef GLOBALQ_COMPILE_FAIL_OFF
  gq::allreduce_mean bad{workers, gq::uncompressed{}, gq::schedule::native{}, {}};
  bad(x, 0);
#endif
}
