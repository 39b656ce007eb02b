// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the loops of uniform levels, and of wire formats.

#include <globalq/operator/built_in-inl.hpp>

GLOBALQ_DEFINE_LEVELS(levels::uniform<>)
GLOBALQ_DEFINE_WIRES
