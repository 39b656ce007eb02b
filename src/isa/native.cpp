// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for the instructions that the build's own flags allow.

#define GLOBALQ_ISA_SET native
#include "define.hpp"
