// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: the built-in schedules.

#include <globalq/schedule/built_in-inl.hpp>
