// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: built-in policies: their compositions, codes of variable length, leaves for values.

#include <globalq/operator/built_in-inl.hpp>
