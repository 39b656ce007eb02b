// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: holders of the policies of built-in compositions.

#include <globalq/operator/built_in-inl.hpp>

GLOBALQ_DEFINE_COMPOSITIONS(levels::uniform<>)
GLOBALQ_DEFINE_COMPOSITIONS(levels::exponential<>)
GLOBALQ_DEFINE_COMPOSITIONS(levels::detail::level_table)
