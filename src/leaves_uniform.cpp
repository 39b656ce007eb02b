// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the loops of uniform levels, and of wire formats.

#include <globalq/operator/built_in-inl.hpp>

namespace globalq::kernel::host {
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::uniform<>)
GLOBALQ_LEAVES_OF_WIRES(GLOBALQ_DEFINE_LEAF)
}  // namespace globalq::kernel::host

namespace globalq {
GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels::uniform<>)
}  // namespace globalq
