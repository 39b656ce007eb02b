// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: calls in host memory, and the checks before them.

#include <globalq/call/detail/definitions.hpp>
