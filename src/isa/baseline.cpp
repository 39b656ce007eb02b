// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for every processor of the architecture.

#define GLOBALQ_ISA_SET baseline
#include "define.hpp"
