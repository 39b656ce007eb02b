// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: transport::threads.

#include <globalq/transport/threads-inl.hpp>
