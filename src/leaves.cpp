// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the leaves of built-in policies, of the chosen instruction set.

#include <globalq/operator/built_in-inl.hpp>

GLOBALQ_DEFINE_LEAVES
