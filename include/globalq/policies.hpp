// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Policies of your own with globalq::compiled: the loops that the library cannot have compiled. Header-only sources
/// have them from globalq.hpp.

#include "globalq.hpp"
#include "operator/detail/coded_codec.hpp"
#include "operator/detail/host_policies.hpp"
