// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the loops of tables of levels.

#include <globalq/operator/built_in-inl.hpp>

GLOBALQ_DEFINE_LEVELS(levels::detail::level_table)
