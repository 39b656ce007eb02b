// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: which leaves are called on the processor at hand.

#include <globalq/kernel/isa/set-inl.hpp>
