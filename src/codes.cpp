// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: codes of variable length.

#include <globalq/operator/built_in-inl.hpp>

GLOBALQ_DEFINE_CODES
