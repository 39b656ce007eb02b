// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: selects the leaves for the processor at run time.

#include <globalq/kernel/isa/set-inl.hpp>
