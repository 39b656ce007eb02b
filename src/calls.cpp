// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: calls of host memory, and what is decided before one is made.

#include <globalq/call/detail/definitions.hpp>
