// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for AVX2 and the other instructions of x86-64-v3.

#define GLOBALQ_ISA_SET avx2
#include "define.hpp"
