// expect-error: globalq: centred_mean runs on the host. On a stream scale by magnitude
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Midpoints are taken off on the host.

#include <globalq/centred_mean.hpp>
#include <globalq/transport/staged.hpp>
#include <globalq/transport/threads.hpp>

namespace gq = globalq;

#ifndef GLOBALQ_COMPILE_FAIL_OFF
using transport_type = gq::transport::staged<gq::transport::threads::endpoint, Kokkos::Serial>;
#else
using transport_type = gq::transport::threads::endpoint;
#endif

void average(transport_type& workers) {
  gq::centred_mean const mean{workers, gq::uncompressed{}, gq::schedule::ring{}, 128};
}
