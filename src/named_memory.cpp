// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: transport::named_memory.

#include <globalq/transport/named_memory-inl.hpp>
