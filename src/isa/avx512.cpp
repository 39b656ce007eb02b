// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: leaves for AVX-512 F, BW, CD, DQ and VL (x86-64-v4).

#define GLOBALQ_ISA_SET avx512
#include "define.hpp"
