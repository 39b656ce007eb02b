// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the loops of exponential levels.

#include <globalq/operator/built_in-inl.hpp>

namespace globalq::kernel::host {
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::exponential<>)
}  // namespace globalq::kernel::host

namespace globalq {
GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels::exponential<>)
}  // namespace globalq
