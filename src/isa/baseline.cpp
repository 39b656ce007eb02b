// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for what every processor of the architecture runs.

#define GLOBALQ_ISA_SET baseline
#include "define.hpp"
