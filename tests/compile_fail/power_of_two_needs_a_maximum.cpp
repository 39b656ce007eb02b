// expect-error: norm::power_of_two needs a local norm or a maximum over the workers
// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Rounding up commutes with a maximum over the workers, not with a sum of powers.

#include <globalq/norm/norms.hpp>

namespace gq = globalq;

[[maybe_unused]] gq::norm::power_of_two<gq::norm::l<2, gq::infinity>> const accepted;

#ifndef GLOBALQ_COMPILE_FAIL_OFF
[[maybe_unused]] gq::norm::power_of_two<gq::norm::l<2, 2>> const refused;
#endif
