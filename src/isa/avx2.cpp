// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for AVX2 and what comes with it (x86-64-v3).

#define GLOBALQ_ISA_SET avx2
#include "define.hpp"
